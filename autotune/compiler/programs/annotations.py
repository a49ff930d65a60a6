"""Annotations that schedule rules put on blocks, for the passes over the generated source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HALF = "autotune.half"
"""Annotation of a block whose result is stored in half precision."""
IMAGE = "autotune.image"
"""Annotation of a block whose operands in global memory are read as images."""


def reads_images(trace: Any) -> bool:
    """Returns whether a schedule reads operands as images, according to its trace."""
    return any(one.kind.name == "Annotate" and str(one.attrs[0]) == IMAGE for one in trace.insts)


def functions_of(module: Any) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yields the functions of a scheduled `tvm.IRModule`: the name in its kernels, a `Schedule`, and its blocks."""
    from tvm import tirx
    from tvm.s_tir import Schedule

    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            schedule = Schedule(function)
            blocks = list(schedule.get_child_blocks(schedule.get_sblock("root")))
            yield str(function.attrs.get("global_symbol", name.name_hint)), schedule, blocks


def noted_blocks(module: Any, note: str) -> dict[str, list[Any]]:
    """Returns the blocks of a scheduled `tvm.IRModule` with an annotation, by function (if it has any)."""
    found = {}
    for function, schedule, blocks in functions_of(module):
        if noted := [block for block in map(schedule.get, blocks) if note in block.annotations]:
            found[function] = noted
    return found
