"""Operands of OpenCL kernels that are read as images, which GPUs read through the caches of their textures.

An image here is a view of a buffer, so that nothing is copied: of one dimension (`image1d_buffer_t`, which all
devices of OpenCL 1.2 with images have), or, where such are too short for an operand, of two (`image2d_t`, by
`cl_khr_image2d_from_buffer`), with rows of one power of two for all images of a program. Adreno reads them through
a cache of its own (Qualcomm, "Snapdragon Mobile Platform OpenCL General Programming and Optimization", on memory
optimisation).

What is to be an image is said by the schedule, on the block that reads it. The source is then written for all of
these: it reads buffers unless whoever launches it defines `AUTOTUNE_IMAGES`, because the device has images as long,
and `AUTOTUNE_IMAGE_WIDTH`, where they have two dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from autotune.compiler.opencl_c.kernel_text import (
    Access,
    KernelText,
    accesses,
    kernels,
    replaced,
    with_kernels,
)
from autotune.compiler.programs import IMAGE, noted_blocks

CHANNELS = {4: "", 2: ".xy", 1: ".x"}
"""Elements of a texel, as many as all reads of an operand are wide, and how a read of it takes them."""

_ROW_AND_COLUMN = "(int2)((int)((uint)(texel) % AUTOTUNE_IMAGE_WIDTH), (int)((uint)(texel) / AUTOTUNE_IMAGE_WIDTH))"


def _prelude() -> str:
    """Macros of all forms, once in a source."""
    forms = {"buffers": "", "flat": "", "wide": ""}
    for channels, taken in CHANNELS.items():
        pointer = f"__global const float{channels if channels > 1 else ''}* restrict"
        for form, kind, read in (
            ("buffers", pointer, "(image)[texel]"),
            ("flat", "__read_only image1d_buffer_t", f"read_imagef(image, texel){taken}"),
            ("wide", "__read_only image2d_t", f"read_imagef(image, {_ROW_AND_COLUMN}){taken}"),
        ):
            forms[form] += f"#define AUTOTUNE_IMAGE{channels}(texels) {kind}\n"
            forms[form] += f"#define AUTOTUNE_READ{channels}(image, texel) {read}\n"
    return (
        f"#ifndef AUTOTUNE_READ1\n#ifndef AUTOTUNE_IMAGES\n{forms['buffers']}"
        f"#elif defined(AUTOTUNE_IMAGE_WIDTH)\n{forms['wide']}#else\n{forms['flat']}#endif\n#endif\n"
    )


_IMAGE_PARAMETER = re.compile(r"AUTOTUNE_IMAGE(\d)\((\d+)\)")


@dataclass(frozen=True)
class Image:
    """A parameter of a device function that is read as an image.

    Attributes:
        channels: Elements of a texel.
        texels: Its texels.
    """

    channels: int
    texels: int


def image_operands(module: Any) -> dict[str, dict[str, int]]:
    """Elements of the operands that a scheduled `tvm.IRModule` reads as images, by function and parameter."""
    return {
        function: {
            f"{read.source.name}_ptr": prod(int(extent) for extent in read.source.shape)
            for block in blocks
            for read in block.reads
        }
        for function, blocks in noted_blocks(module, IMAGE).items()
    }


def with_image_reads(source: str, operands: Mapping[str, Mapping[str, int]]) -> str:
    """OpenCL C as `with_aligned_vectors` gives it, with operands read as images.

    An operand whose accesses are not all of one width, or that a kernel writes, stays a buffer.

    Args:
        source: The source.
        operands: See `image_operands`.
    """
    if not operands:
        return source
    return with_kernels(source, lambda kernel: _rewritten(kernel, operands))


def _rewritten(kernel: KernelText, operands: Mapping[str, Mapping[str, int]]) -> str:
    wanted = next((some for function, some in operands.items() if kernel.of(function)), {})
    made = kernel
    for parameter, elements in wanted.items():
        declared = f"__global float* restrict {parameter}"
        found = accesses(made.body, parameter) or []
        widths = {one.lanes if one.value is None else 0 for one in found}
        if declared not in made.signature.split(", ") or widths not in map(_only, CHANNELS):
            continue
        (channels,) = widths
        image = f"AUTOTUNE_IMAGE{channels}({elements // channels}) {parameter}"

        def read(one: Access, name: str = parameter) -> str:
            texel = f"({one.index}) / {one.lanes}" if one.lanes > 1 else one.index
            return f"AUTOTUNE_READ{one.lanes}({name}, {texel})"

        made = replace(
            made,
            signature=made.signature.replace(declared, image),
            body=replaced(made.body, found, read),
        )
    return str(kernel) if made is kernel else f"{_prelude()}{made}"


def _only(width: int) -> set[int]:
    return {width}


def images(source: str, function: str) -> dict[int, Image]:
    """The parameters of a device function that are images, by their place."""
    (kernel,) = (one for one in kernels(source) if one.name == function)
    return {
        place: Image(int(found[1]), int(found[2]))
        for place, parameter in enumerate(kernel.signature.split(", "))
        if (found := _IMAGE_PARAMETER.match(parameter))
    }
