"""Vector accesses of OpenCL kernels: aligned where the address surely is, left alone elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiler.opencl_c.aligned_vectors import divisor, with_aligned_vectors

SOURCE = """// Function: main_kernel
__kernel void main_kernel(__global float* restrict x_ptr, __global float* restrict y_ptr);
__kernel void main_kernel(__global float* restrict x_ptr, __global float* restrict y_ptr) {
  __local float tile_ptr[64];
  float own_ptr[4];
  int cse_v1 = ((convert_int(get_local_id(0))) * 4);
  vstore4(vload4(0, x_ptr + (cse_v1 + 1)), 0, tile_ptr + cse_v1);
  vstore2(vload2(0, tile_ptr + (cse_v1 + 2)), 0, own_ptr + 0);
  vstore4(vload4(0, x_ptr + (cse_v1 + 8)), 0, y_ptr + ((convert_int(get_group_id(0))) * 2));
}
"""


def test_accesses_at_aligned_addresses_go_through_vector_pointers() -> None:
    rewritten = with_aligned_vectors(SOURCE)
    assert (
        "(*((__local float4*)(tile_ptr + cse_v1)) = vload4(0, x_ptr + (cse_v1 + 1)));" in rewritten
    )
    assert (
        "(*((float2*)(own_ptr + 0)) = (*((__local float2*)(tile_ptr + (cse_v1 + 2)))));"
        in rewritten
    )
    assert (
        "vstore4((*((__global float4*)(x_ptr + (cse_v1 + 8)))), 0, "
        "y_ptr + ((convert_int(get_group_id(0))) * 2));" in rewritten
    )


def test_arrays_of_a_kernel_are_told_to_be_aligned() -> None:
    rewritten = with_aligned_vectors(SOURCE)
    assert "  __local float tile_ptr[64] __attribute__((aligned(64)));" in rewritten
    assert "  float own_ptr[4] __attribute__((aligned(64)));" in rewritten


def test_a_kernel_without_vectors_stays_as_it_is() -> None:
    source = SOURCE[: SOURCE.index("  __local")] + "  y_ptr[0] = x_ptr[0];\n}\n"
    head, _, kernel = source.partition(";\n")  # its declaration, which nothing needs
    assert with_aligned_vectors(source) == head[: head.index("__kernel")] + kernel


def test_a_name_that_two_scopes_give_counts_with_what_both_have() -> None:
    source = SOURCE.replace(
        "  vstore2(", "  { int cse_v1 = (convert_int(get_local_id(1)));\n  }\n  vstore2("
    )
    assert "tile_ptr + cse_v1)) =" not in with_aligned_vectors(source)


@pytest.mark.parametrize("text", ["a ? 4 : 8", "a < b", "f(4)", "a / b", "((", "4.0"])
def test_what_is_not_understood_is_a_multiple_of_one(text: str) -> None:
    assert divisor(text, {}) == 1


NAMES = ("a", "b")


def _expressions() -> st.SearchStrategy[str]:
    leaves = st.one_of(st.integers(0, 64).map(str), st.sampled_from(NAMES))

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        small = st.integers(1, 16).map(str)
        return st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
            st.builds("({} {} {})".format, inner, st.sampled_from(["%", "&", ">>"]), small),
            st.builds("(convert_int({}))".format, inner),
        )

    return st.recursive(leaves, grown, max_leaves=8)


@given(_expressions(), st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 2, 4, 12]))
def test_every_value_is_a_multiple_of_the_divisor(text: str, a: int, b: int, of_a: int) -> None:
    """Names stand for multiples of what is known of them; C's rest has the sign of the number, Python's not."""
    value = eval(text, {"a": a * of_a, "b": b, "convert_int": int})
    found = divisor(text, {"a": of_a})
    assert value == 0 if found == 0 else value % found == 0
