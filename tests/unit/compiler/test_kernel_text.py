"""Accesses of buffers in OpenCL source, and buffers in half precision."""

from __future__ import annotations

import pytest

from autotune.compiler.opencl_c.half_storage import with_half_storage
from autotune.compiler.opencl_c.kernel_text import accesses, kernels
from autotune.errors import ToolchainError

HEAD = "__global float* restrict x_ptr, __global float* restrict y_ptr"
BODY = """
  __local float tile_ptr[64] __attribute__((aligned(64)));
  (*((__local float4*)(tile_ptr + ((id * 4) + 8))) = (*((__global float4*)(x_ptr + (4 * (2))))));
  tile_ptr[(1 + tile[(2)])] = tile_ptr[3];
  y_ptr[0] = (((float2)(tile_ptr[0], tile_ptr[1])) * 2.0f).x;
}
"""
DECLARED = f"__kernel void main_kernel({HEAD});\n"
SOURCE = f"{DECLARED}__kernel void main_kernel({HEAD}) {{{BODY}"


def test_a_source_is_read_as_kernels() -> None:
    second = SOURCE.replace("main_kernel", "main_kernel_12")
    found = kernels(SOURCE + second)
    assert [one.name for one in found] == ["main_kernel", "main_kernel_12"]
    assert all(one.of("main") and not one.of("mai") for one in found)
    assert str(found[0]) == SOURCE.removeprefix(DECLARED).replace(
        "}\n__kernel", "}\n"
    ) + DECLARED.replace("main_kernel", "main_kernel_12")


def test_loads_and_stores_of_elements_and_vectors_are_found() -> None:
    found = accesses(BODY, "tile_ptr")
    assert found is not None
    assert [(one.lanes, one.index, one.value) for one in found] == [
        (4, "((id * 4) + 8)", "(*((__global float4*)(x_ptr + (4 * (2)))))"),
        (1, "(1 + tile[(2)])", "tile_ptr[3]"),
        (1, "3", None),
        (1, "0", None),
        (1, "1", None),
    ]  # fmt: skip
    assert [(one.lanes, one.index) for one in accesses(BODY, "x_ptr") or ()] == [(4, "(4 * (2))")]


@pytest.mark.parametrize("line", ["vload4(0, x_ptr + 1)", "f(x_ptr)"])
def test_another_kind_of_access_is_not_understood(line: str) -> None:
    assert accesses(f"  y = {line};\n", "x_ptr") is None
    source = SOURCE.replace("  y_ptr[0]", f"  y = {line};\n  y_ptr[0]")
    with pytest.raises(ToolchainError, match="main_kernel cannot keep x_ptr in half precision"):
        with_half_storage(source, {"main": {"x_ptr"}})


def test_a_buffer_in_half_precision_is_loaded_and_stored_by_conversions() -> None:
    made = with_half_storage(SOURCE, {"main": {"tile_ptr", "absent_ptr"}})
    assert "__local ushort tile_ptr[64] __attribute__((aligned(64)));" in made
    assert (
        "(vstorea_half4((*((__global float4*)(x_ptr + (4 * (2))))), 0, "
        "(__local half*)tile_ptr + (((id * 4) + 8))));" in made
    )
    load = "vload_half(3, (__local half*)tile_ptr)"
    assert f"  vstore_half({load}, (1 + tile[(2)]), (__local half*)tile_ptr);" in made
    made = with_half_storage(SOURCE, {"main": {"x_ptr"}})
    assert "(__global half* restrict x_ptr, __global float* restrict y_ptr) {" in made
    assert "vloada_half4(0, (__global half*)x_ptr + ((4 * (2))))" in made
    assert with_half_storage(SOURCE, {}) == SOURCE


def test_an_array_of_vectors_is_kept_in_half_precision_too() -> None:
    """TVM makes one of what is accessed in vectors alone."""
    body = """
  __local float4 tile_ptr[16];
  tile_ptr[(id + 2)] = (*((__global float4*)(x_ptr + (4 * (2)))));
  y_ptr[0] = (tile_ptr[(id + 3)] * tile_ptr[0]).x;
}
"""
    source = f"__kernel void main_kernel({HEAD}) {{{body}"
    made = with_half_storage(source, {"main": {"tile_ptr"}})
    assert "__local ushort tile_ptr[64] __attribute__((aligned(64)));" in made
    half = "(__local half*)tile_ptr"
    assert (
        f"  (vstorea_half4((*((__global float4*)(x_ptr + (4 * (2))))), 0, {half} + (((id + 2)) * 4)));"
        in made
    )
    loads = (f"vloada_half4(0, {half} + (({index}) * 4))" for index in ("(id + 3)", "0"))
    assert f"  y_ptr[0] = ({' * '.join(loads)}).x;" in made
