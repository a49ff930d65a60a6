"""Operands that are read as images: the source says both forms, and what cannot be an image stays a buffer."""

from __future__ import annotations

import pytest

from autotune.compiler.opencl_c.image_reads import Image, images, with_image_reads

HEAD = (
    "__global float* restrict x_ptr, __global float* restrict w_ptr, __global float* restrict y_ptr"
)
BODY = """  float own_ptr[4] __attribute__((aligned(64)));
  (*((float4*)(own_ptr + 0)) = (*((__global float4*)(x_ptr + (((convert_int(get_local_id(0))) * 4) + 8)))));
  own_ptr[1] = ((0 < n) ? w_ptr[(own_ptr[(n)] + 3)] : 0.000000e+00f);
  y_ptr[0] = own_ptr[0];
}
"""
SOURCE = f"__kernel void main_kernel({HEAD});\n__kernel void main_kernel({HEAD}) {{\n{BODY}"
ELEMENTS = {"x_ptr": 1024, "w_ptr": 36, "y_ptr": 8}


def _rewritten(source: str, **elements: int) -> str:
    return with_image_reads(source, {"main": elements or ELEMENTS})


def test_reads_of_four_neighbours_and_of_one_are_reads_of_images() -> None:
    rewritten = _rewritten(SOURCE)
    assert "AUTOTUNE_READ4(x_ptr, (((convert_int(get_local_id(0))) * 4) + 8)) / 4)" in (
        rewritten.replace("((((", "(((", 1)
    )
    assert "? AUTOTUNE_READ1(w_ptr, (own_ptr[(n)] + 3)) : 0" in rewritten
    assert images(rewritten, "main_kernel") == {0: Image(4, 256), 1: Image(1, 36)}
    assert "y_ptr[0] = own_ptr[0];" in rewritten
    assert "__global float* restrict y_ptr" in rewritten
    assert rewritten.count("__kernel") == 1


def test_only_what_the_schedule_names_is_an_image() -> None:
    rewritten = _rewritten(SOURCE, w_ptr=36)
    assert images(rewritten, "main_kernel") == {1: Image(1, 36)}
    assert with_image_reads(SOURCE, {}) == SOURCE
    assert images(with_image_reads(SOURCE, {"other": ELEMENTS}), "main_kernel") == {}


@pytest.mark.parametrize(
    "line",
    [
        "  x_ptr[4] = 1.0f;",
        "  own_ptr[2] = x_ptr[4];",
        "  (*((__global float4*)(x_ptr + 4)) = own);",
        "  own = vload4(0, x_ptr + (3));",
        "  own2 = (*((__global float2*)(x_ptr + (6))));",
    ],
)
def test_an_operand_with_accesses_of_another_kind_stays_a_buffer(line: str) -> None:
    source = SOURCE.replace("  y_ptr[0]", f"{line}\n  y_ptr[0]")
    assert images(_rewritten(source), "main_kernel") == {1: Image(1, 36)}


def test_functions_are_told_apart_by_their_kernels_names() -> None:
    second = SOURCE.replace("main_kernel", "main_2_kernel_1")
    rewritten = with_image_reads(SOURCE + second, {"main": {"x_ptr": 8}, "main_2": {"w_ptr": 36}})
    assert images(rewritten, "main_kernel") == {0: Image(4, 2)}
    assert images(rewritten, "main_2_kernel_1") == {1: Image(1, 36)}
