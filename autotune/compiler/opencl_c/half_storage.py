"""Buffers of OpenCL kernels that are kept in half precision, and computed with in single.

Every OpenCL device has `vload_half` and `vstore_half`, whether it computes in half precision or not (OpenCL C 1.2,
section 6.12.7). What is kept so is said by the schedule, on the block that writes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from autotune.compiler.opencl_c.kernel_text import (
    Access,
    KernelText,
    accesses,
    kernels,
    replaced,
    with_kernels,
)
from autotune.compiler.programs import HALF, noted_blocks
from autotune.errors import ToolchainError

_ALIGNED = " __attribute__((aligned(64)))"


def half_buffers(module: Any) -> dict[str, frozenset[str]]:
    """Names of what a scheduled `tvm.IRModule` keeps in half precision, by function."""
    return {
        function: frozenset(f"{block.writes[0].source.name}_ptr" for block in blocks)
        for function, blocks in noted_blocks(module, HALF).items()
    }


def with_half_storage(source: str, buffers: Mapping[str, Collection[str]]) -> str:
    """OpenCL C as `with_aligned_vectors` gives it, with such buffers in half precision.

    Args:
        source: The source.
        buffers: See `half_buffers`.

    Raises:
        ToolchainError: A kernel accesses one in a way that is not understood.
    """
    if not buffers:
        return source
    return with_kernels(source, lambda kernel: str(_rewritten(kernel, buffers)))


def note_writers(
    source: str,
    buffers: Mapping[str, Collection[str]],
    writers: dict[tuple[str, str], str],
) -> None:
    """Notes the kernel that writes each buffer in global memory, which there must be one of.

    TVM puts later results where a buffer was that nobody reads any more: they would be kept in half precision too.

    Args:
        source: OpenCL C as `with_half_storage` takes it, or a part of it.
        buffers: See `half_buffers`.
        writers: The kernel by function and buffer, of the parts before this one; those of this one are added.

    Raises:
        ToolchainError: Another kernel writes one.
    """
    for function, names in buffers.items():
        for kernel in kernels(source):
            parameters = kernel.signature.split(", ")
            for name in names:
                there = kernel.of(function) and f"__global float* restrict {name}" in parameters
                if not there or all(one.value is None for one in accesses(kernel.body, name) or ()):
                    continue
                if (writer := writers.setdefault((function, name), kernel.name)) != kernel.name:
                    raise ToolchainError(
                        f"{kernel.name} puts another result where {writer} has kept {name} in half precision"
                    )


def _rewritten(kernel: KernelText, buffers: Mapping[str, Collection[str]]) -> KernelText:
    wanted = next((some for function, some in buffers.items() if kernel.of(function)), ())
    for name in sorted(wanted):
        body, lanes = kernel.body, 1
        parameter = f"__global float* restrict {name}"
        # TVM makes an array of vectors of what is accessed in such alone.
        array = re.search(rf"__local float(\d*) {name}\[(\d+)\]({re.escape(_ALIGNED)})?", body)
        if parameter in kernel.signature.split(", "):
            space = "__global"
        elif array:
            space, lanes = "__local", int(array[1] or 1)
            halves = f"__local ushort {name}[{lanes * int(array[2])}]{_ALIGNED}"
            body = body.replace(array[0], halves)
        elif re.search(rf"\b{name}\b", kernel.signature + body):
            space = ""
        else:
            continue  # Another kernel's.
        if not space or accesses(body, name) is None:
            raise ToolchainError(f"{kernel.name} cannot keep {name} in half precision")
        kernel = replace(
            kernel,
            signature=kernel.signature.replace(parameter, f"__global half* restrict {name}"),
            body=_in_half(body, name, space, lanes),
        )
    return kernel


def _in_half(body: str, name: str, space: str, lanes: int) -> str:
    """The body with every access of a buffer in half precision, from the last on: values hold some themselves.

    An element of the buffer is a vector of so many lanes.
    """
    done = f"{name}_in_half"

    def halves(one: Access) -> str:
        if lanes > 1:
            one = replace(one, lanes=lanes, index=f"({one.index}) * {lanes}")
        return _text(one, f"({space} half*){done}")

    while found := accesses(body, name):
        body = replaced(body, found[-1:], halves)
    return body.replace(done, name)


def _text(one: Access, pointer: str) -> str:
    if one.lanes == 1:
        place = f"{one.index}, {pointer}"
        return f"vload_half({place})" if one.value is None else f"vstore_half({one.value}, {place})"
    place = f"0, {pointer} + ({one.index})"
    if one.value is None:
        return f"vloada_half{one.lanes}({place})"
    return f"(vstorea_half{one.lanes}({one.value}, {place}))"
