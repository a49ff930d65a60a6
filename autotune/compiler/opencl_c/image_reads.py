"""Reads operands of OpenCL kernels as images, which GPUs read through their texture caches.

Such an image is a view of a buffer, so nothing is copied. It has one dimension (`image1d_buffer_t`, which all
OpenCL 1.2 devices with images have). If these are too short for an operand, it has two dimensions (`image2d_t`,
with `cl_khr_image2d_from_buffer`); the row length is one power of two for all images of a program. Adreno reads
images through a separate cache (Qualcomm, "Snapdragon Mobile Platform OpenCL General Programming and Optimization",
on memory optimisation).

The schedule marks the operands on the block that reads them. The source then covers all cases. It reads buffers
unless the launching program defines `AUTOTUNE_IMAGES`, because the device has images that are long enough, and
`AUTOTUNE_IMAGE_WIDTH`, for images of two dimensions.
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
"""Elements of a texel (the width of all reads of the operand), and the components that a read takes."""

_ROW_AND_COLUMN = "(int2)((int)((uint)(texel) % AUTOTUNE_IMAGE_WIDTH), (int)((uint)(texel) / AUTOTUNE_IMAGE_WIDTH))"


def _prelude() -> str:
    """Returns macros for all cases, defined once in a source."""
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
        texels: Number of texels.
    """

    channels: int
    texels: int


def image_operands(module: Any) -> dict[str, dict[str, int]]:
    """Returns the sizes (in elements) of operands that a scheduled `tvm.IRModule` reads as images, by function."""
    return {
        function: {
            f"{read.source.name}_ptr": prod(int(extent) for extent in read.source.shape)
            for block in blocks
            for read in block.reads
        }
        for function, blocks in noted_blocks(module, IMAGE).items()
    }


def with_image_reads(source: str, operands: Mapping[str, Mapping[str, int]]) -> str:
    """Returns the output of `with_aligned_vectors` with operands read as images.

    An operand stays a buffer if its accesses differ in width, or if a kernel writes it.

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
    """Returns the parameters of a device function that are images, by their position."""
    (kernel,) = (one for one in kernels(source) if one.name == function)
    return {
        place: Image(int(found[1]), int(found[2]))
        for place, parameter in enumerate(kernel.signature.split(", "))
        if (found := _IMAGE_PARAMETER.match(parameter))
    }
