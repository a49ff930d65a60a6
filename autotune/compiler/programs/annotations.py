"""Annotations that schedule rules leave on blocks, for the passes over the source that is generated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

HALF = "autotune.half"
"""Annotation of a block whose result is kept in half precision."""
IMAGE = "autotune.image"
"""Annotation of a block whose operands in global memory are read as images."""


def reads_images(trace: Any) -> bool:
    """Whether a schedule, by its trace, reads operands as images."""
    return any(one.kind.name == "Annotate" and str(one.attrs[0]) == IMAGE for one in trace.insts)


def functions_of(module: Any) -> Iterator[tuple[str, Any, list[Any]]]:
    """Functions of a scheduled `tvm.IRModule`: the name that their kernels have, a `Schedule`, and its blocks."""
    from tvm import tirx
    from tvm.s_tir import Schedule

    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            schedule = Schedule(function)
            blocks = list(schedule.get_child_blocks(schedule.get_sblock("root")))
            yield str(function.attrs.get("global_symbol", name.name_hint)), schedule, blocks


def noted_blocks(module: Any, note: str) -> dict[str, list[Any]]:
    """The blocks of a scheduled `tvm.IRModule` that a sketch annotated so, by function, where there are some."""
    found = {}
    for function, schedule, blocks in functions_of(module):
        if noted := [block for block in map(schedule.get, blocks) if note in block.annotations]:
            found[function] = noted
    return found
