"""Buffers of OpenCL kernels that are kept in half precision, and computed with in single.

Every OpenCL device has `vload_half` and `vstore_half`, whether it computes in half precision or not (OpenCL C 1.2,
section 6.12.7). What is kept so is said by the schedule, on the block that writes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from autotune.compiler.kernel_text import Access, KernelText, accesses, replaced, with_kernels
from autotune.compiler.tile_rules import noted_blocks
from autotune.errors import ToolchainError

HALF = "autotune.half"
"""Annotation of a block whose result is kept in half precision."""


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


def _rewritten(kernel: KernelText, buffers: Mapping[str, Collection[str]]) -> KernelText:
    wanted = next((some for function, some in buffers.items() if kernel.of(function)), ())
    for name in sorted(wanted):
        kernel = replace(kernel, body=_of_scalars(kernel.body, name))
        parameter, array = f"__global float* restrict {name}", f"__local float {name}["
        if parameter in kernel.signature.split(", "):
            space = "__global"
        elif array in kernel.body:
            space = "__local"
        elif re.search(rf"\b{name}\b", kernel.signature + kernel.body):
            raise ToolchainError(f"{kernel.name} cannot keep {name} in half precision")
        else:
            continue  # Another kernel's.
        found = accesses(kernel.body, name)
        if found is None:
            raise ToolchainError(f"{kernel.name} cannot keep {name} in half precision")
        kernel = replace(
            kernel,
            signature=kernel.signature.replace(parameter, f"__global half* restrict {name}"),
            body=_in_half(kernel.body, name, space).replace(array, f"__local ushort {name}["),
        )
    return kernel


def _of_scalars(body: str, name: str) -> str:
    """The body with an array in local memory that TVM made of vectors as one of scalars."""
    vectors = re.search(rf"__local float(\d+) {name}\[(\d+)\]", body)
    if vectors is None:
        return body
    lanes, done = int(vectors[1]), f"{name}_of_scalars"
    array = f"__local float {name}[{lanes * int(vectors[2])}] __attribute__((aligned(64)))"

    def scalars(one: Access) -> str:
        place = f"*((__local float{lanes}*)({done} + ({one.index}) * {lanes}))"
        return f"({place})" if one.value is None else f"({place} = {one.value})"

    body = body.replace(vectors[0], array)
    while found := accesses(body, name):
        body = replaced(body, found[-1:], scalars)
    return body.replace(done, name)


def _in_half(body: str, name: str, space: str) -> str:
    """The body with every access of a buffer in half precision, from the last on: values hold some themselves."""
    done = f"{name}_in_half"
    while found := accesses(body, name):
        body = replaced(body, found[-1:], lambda one: _text(one, f"({space} half*){done}"))
    return body.replace(done, name)


def _text(one: Access, pointer: str) -> str:
    if one.lanes == 1:
        place = f"{one.index}, {pointer}"
        return f"vload_half({place})" if one.value is None else f"vstore_half({one.value}, {place})"
    place = f"0, {pointer} + ({one.index})"
    if one.value is None:
        return f"vloada_half{one.lanes}({place})"
    return f"(vstorea_half{one.lanes}({one.value}, {place}))"
