"""Neighbouring results of OpenCL kernels: one store where they are surely aligned, left alone elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.compiler.vector_stores import parted, with_vector_stores

HEAD = "__kernel void main_kernel(__global float* restrict x_ptr, __global float* restrict y_ptr) {"
ITEM = "(convert_int(get_local_id(0)))"


def kernel(*lines: str) -> str:
    return "\n".join([HEAD, "  float own_ptr[8];", *(f"  {line}" for line in lines), "}", ""])


def stored(offset: int, *, base: str = f"({ITEM} * 8)", value: str = "") -> str:
    index = f"({base} + {offset})" if offset else base
    return f"y_ptr[{index}] = {value or f'own_ptr[{offset}]'};"


def test_neighbours_are_stored_as_vectors_in_whatever_order_they_come() -> None:
    source = kernel(*(stored(offset) for offset in (0, 4, 1, 5, 2, 6, 3, 7)))
    first, second = (
        f"  *((__global float4*)(y_ptr + {index})) = (float4)({', '.join(f'own_ptr[{n}]' for n in lanes)});"
        for index, lanes in ((f"({ITEM} * 8)", range(4)), (f"(({ITEM} * 8) + 4)", range(4, 8)))
    )
    assert with_vector_stores(source) == kernel(first.strip(), second.strip())


def test_what_has_no_neighbours_stays_beside_them() -> None:
    rewritten = with_vector_stores(kernel(*(stored(offset) for offset in (0, 1, 2, 6))))
    assert "(float2)(own_ptr[0], own_ptr[1]);" in rewritten
    assert stored(2) in rewritten and stored(6) in rewritten


def test_branches_of_one_condition_are_joined() -> None:
    branches = [
        line
        for offset in range(4)
        for line in (
            f"int cse_v{offset} = ({ITEM} + {offset});",
            "if ((convert_int(get_group_id(0))) < 9) {",
            f"  {stored(offset)}",
            "}",
        )
    ]
    rewritten = with_vector_stores(kernel(*branches))
    assert rewritten.count("if (") == rewritten.count("float4*") == 1
    assert all(f"int cse_v{offset}" in rewritten for offset in range(4))


LANES = range(4)


@pytest.mark.parametrize(
    "lines",
    [
        [stored(offset, base=f"({ITEM} * 9)") for offset in LANES],
        [stored(offset + 1) for offset in LANES][::3],
        [f"y_ptr[((({ITEM} * 8) + {offset}) % 6)] = own_ptr[{offset}];" for offset in (1, 2)],
        [stored(offset, value=f"(own_ptr[{offset}] + y_ptr[0])") for offset in LANES],
        [*(stored(offset) for offset in LANES), stored(0, value="0.0f")],
        [line for n in LANES for line in (stored(n), "barrier(CLK_GLOBAL_MEM_FENCE);")],
        [line for n in LANES for line in (f"int a = own_ptr[{n}];", stored(n, value="a"))],
        [line for n in LANES for line in (f"if ({ITEM} < {n}) {{", f"  {stored(n)}", "}")],
        [line for n in LANES for line in (f"if ({ITEM} < 9) {{", f"  {stored(n)}", "} else {", "}")],
        [f"own_ptr[{offset}] = x_ptr[{offset}];" for offset in LANES],
        [stored(offset, base=f"({ITEM} ? 8 : 4)") for offset in LANES],
    ],
)  # fmt: skip
def test_what_is_not_surely_alike_stays_as_it_is(lines: list[str]) -> None:
    assert with_vector_stores(kernel(*lines)) == kernel(*lines)


def expressions() -> st.SearchStrategy[str]:
    """Integer expressions of numbers and of three names."""
    leaves = st.one_of(st.integers(0, 40).map(str), st.sampled_from(["a", "b", "c"]))

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        by = st.tuples(inner, st.sampled_from("*%/"), st.integers(1, 24))
        return st.one_of(
            st.tuples(inner, inner).map(lambda two: f"({two[0]} + {two[1]})"),
            by.map(lambda one: f"({one[0]} {one[1]} {one[2]})"),
            inner.map(lambda one: f"({one} >> 1)"),
        )

    return st.recursive(leaves, larger, max_leaves=8)


@given(expressions(), st.tuples(*(st.integers(0, 30) for _ in range(3))))
def test_an_index_is_its_base_and_its_offset(index: str, factors: tuple[int, int, int]) -> None:
    known = {"a": 8, "b": 4, "c": 1}
    values = {name: factor * known[name] for name, factor in zip(known, factors, strict=True)}

    def value(text: str) -> int:
        return int(eval(text.replace("/", "//"), {}, values))

    base, offset = parted(index, known)
    assert value(base) + offset == value(index)
