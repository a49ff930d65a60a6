"""Stores buffers of OpenCL kernels in half precision; arithmetic stays in single precision.

Every OpenCL device has `vload_half` and `vstore_half`, even if it cannot compute in half precision (OpenCL C 1.2,
section 6.12.7). The schedule marks such a buffer on the block that writes it.
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
    """Returns the names of the buffers that a scheduled `tvm.IRModule` stores in half precision, by function."""
    return {
        function: frozenset(f"{block.writes[0].source.name}_ptr" for block in blocks)
        for function, blocks in noted_blocks(module, HALF).items()
    }


def with_half_storage(source: str, buffers: Mapping[str, Collection[str]]) -> str:
    """Returns the output of `with_aligned_vectors` with the given buffers in half precision.

    Args:
        source: The source.
        buffers: See `half_buffers`.

    Raises:
        ToolchainError: A kernel accesses such a buffer in a way that is not understood.
    """
    if not buffers:
        return source
    return with_kernels(source, lambda kernel: str(_rewritten(kernel, buffers)))


def note_writers(
    source: str,
    buffers: Mapping[str, Collection[str]],
    writers: dict[tuple[str, str], str],
) -> None:
    """Records the kernel that writes each half-precision buffer in global memory. There must be only one.

    TVM reuses the memory of a buffer that is no longer read for later results, which would then also be stored in
    half precision.

    Args:
        source: OpenCL C in the form that `with_half_storage` takes, or a part of it.
        buffers: See `half_buffers`.
        writers: The kernel by function and buffer, from earlier parts. The kernels of this part are added.

    Raises:
        ToolchainError: A second kernel writes one of the buffers.
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
        # If a buffer is accessed only as vectors, TVM makes it an array of vectors.
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
            continue  # It belongs to another kernel.
        if not space or accesses(body, name) is None:
            raise ToolchainError(f"{kernel.name} cannot keep {name} in half precision")
        kernel = replace(
            kernel,
            signature=kernel.signature.replace(parameter, f"__global half* restrict {name}"),
            body=_in_half(body, name, space, lanes),
        )
    return kernel


def _in_half(body: str, name: str, space: str, lanes: int) -> str:
    """Returns the body with every access of a buffer in half precision.

    The last access is replaced first, because stored values can contain accesses themselves.
    An element of the buffer is a vector of `lanes` lanes.
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
