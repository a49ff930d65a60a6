"""Operands of OpenCL kernels that are read as images, which GPUs read through the caches of their textures.

An image here is a view of a buffer (`image1d_buffer_t`, in every OpenCL 1.2 device that has images): no copy, and
as long as an operand. Adreno reads images through a cache of its own (Qualcomm, "Snapdragon Mobile Platform OpenCL
General Programming and Optimization", on memory optimisation).

What is to be an image is said by the schedule, on the block that reads it. The source is then written for both:
it reads buffers unless whoever launches it defines `AUTOTUNE_IMAGES`, because the device has images as long.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

IMAGE = "autotune.image"
"""Annotation of a block whose operands in global memory are read as images."""

CHANNELS = {4: "", 2: ".xy", 1: ".x"}
"""Elements of a texel, as many as all reads of an operand are wide, and how a read of it takes them."""


def _prelude() -> str:
    """Macros of both forms, once in a source."""
    forms = {"buffers": "", "images": ""}
    for channels, taken in CHANNELS.items():
        pointer = f"__global const float{channels if channels > 1 else ''}* restrict"
        for form, kind, read in (
            ("buffers", pointer, "(image)[texel]"),
            ("images", "__read_only image1d_buffer_t", f"read_imagef(image, texel){taken}"),
        ):
            forms[form] += f"#define AUTOTUNE_IMAGE{channels}(texels) {kind}\n"
            forms[form] += f"#define AUTOTUNE_READ{channels}(image, texel) {read}\n"
    return (
        f"#ifndef AUTOTUNE_READ1\n#ifdef AUTOTUNE_IMAGES\n{forms['images']}"
        f"#else\n{forms['buffers']}#endif\n#endif\n"
    )


_DECLARATION = re.compile(r"^__kernel void \w+\(.*\);\n", re.MULTILINE)
_KERNEL = re.compile(r"^__kernel void (\w+)\((.*)\) \{$", re.MULTILINE)
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
    from tvm import tirx
    from tvm.s_tir import Schedule

    found: dict[str, dict[str, int]] = {}
    for name, function in module.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        schedule = Schedule(function)
        blocks = map(schedule.get, schedule.get_child_blocks(schedule.get_sblock("root")))
        operands = {
            f"{read.source.name}_ptr": prod(int(extent) for extent in read.source.shape)
            for block in blocks
            if IMAGE in block.annotations
            for read in block.reads
        }
        if operands:
            found[str(function.attrs.get("global_symbol", name.name_hint))] = operands
    return found


def with_image_reads(source: str, operands: Mapping[str, Mapping[str, int]]) -> str:
    """OpenCL C as `with_aligned_vectors` gives it, with operands read as images.

    An operand whose accesses are not all of one width, or that a kernel writes, stays a buffer.

    Args:
        source: The source.
        operands: See `image_operands`.
    """
    if not operands:
        return source
    # Each kernel stands behind declarations of all of them, which are of no use, and with the types that they had.
    source = _DECLARATION.sub("", source)
    starts = [found.start() for found in _KERNEL.finditer(source)]
    bounds = [0, *starts, len(source)]
    return "".join(_rewritten(source[begin:end], operands) for begin, end in pairwise(bounds))


def _rewritten(kernel: str, operands: Mapping[str, Mapping[str, int]]) -> str:
    head = _KERNEL.match(kernel)
    if head is None:
        return kernel
    wanted = next(
        (
            some
            for name, some in operands.items()
            if re.fullmatch(rf"{re.escape(name)}_kernel(_\d+)?", head[1])
        ),
        {},
    )
    signature, body = head[2], kernel[head.end() :]
    for parameter, elements in wanted.items():
        declared = f"__global float* restrict {parameter}"
        if declared not in signature.split(", "):
            continue
        for channels in CHANNELS:
            read = _as_image(body, parameter, channels)
            if read is not None:
                image = f"AUTOTUNE_IMAGE{channels}({elements // channels}) {parameter}"
                signature, body = signature.replace(declared, image), read
                break
    if signature == head[2]:
        return kernel
    return f"{_prelude()}__kernel void {head[1]}({signature}) {{{body}"


def _as_image(body: str, parameter: str, channels: int) -> str | None:
    """The body with every access of a parameter as a read of an image; None where one is something else."""
    pieces, position = [], 0
    for found in re.finditer(rf"\b{parameter}\b", body):
        access = _element(body, found) if channels == 1 else _vector(body, found, channels)
        if access is None:
            return None
        begin, end, index = access
        texel = f"({index}) / {channels}" if channels > 1 else index
        pieces += [body[position:begin], f"AUTOTUNE_READ{channels}({parameter}, {texel})"]
        position = end
    return "".join([*pieces, body[position:]])


def _vector(body: str, name: re.Match[str], lanes: int) -> tuple[int, int, str] | None:
    """Begin, end and index of an aligned load of some elements at a name."""
    before = f"(*((__global float{lanes}*)("
    begin = name.start() - len(before)
    if not body.startswith(before, max(begin, 0)) or not body.startswith(" + ", name.end()):
        return None
    close = _closing(body, name.end(), "()")
    if not body.startswith(")))", close):
        return None
    return begin, close + 3, body[name.end() + 3 : close]


def _element(body: str, name: re.Match[str]) -> tuple[int, int, str] | None:
    """Begin, end and index of a load of one element at a name."""
    if not body.startswith("[", name.end()):
        return None
    close = _closing(body, name.end() + 1, "[]")
    if body.startswith(" = ", close + 1):
        return None
    return name.start(), close + 1, body[name.end() + 1 : close]


def _closing(text: str, begin: int, pair: str) -> int:
    """Where the bracket closes that is open at `begin`."""
    depth = 1
    for position in range(begin, len(text)):
        depth += (text[position] == pair[0]) - (text[position] == pair[1])
        if depth == 0:
            return position
    raise ValueError("a bracket without an end in OpenCL source")


def images(source: str, function: str) -> dict[int, Image]:
    """The parameters of a device function that are images, by their place."""
    (signature,) = (found[2] for found in _KERNEL.finditer(source) if found[1] == function)
    return {
        place: Image(int(found[1]), int(found[2]))
        for place, parameter in enumerate(signature.split(", "))
        if (found := _IMAGE_PARAMETER.match(parameter))
    }
