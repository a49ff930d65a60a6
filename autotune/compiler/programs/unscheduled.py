"""A program that schedules are made of."""

from __future__ import annotations

from typing import Any

from autotune.compiler.programs.program_text import program_of, program_text


class Unscheduled:
    """A program without a schedule. Each schedule is made of a copy.

    Schedules of one `IRModule` share its parts, and some of TVM's primitives change shared parts in place: after a
    `DecomposeReduction`, the vectorised loop of another block was found in the module and in all later schedules.

    Args:
        module: The unscheduled `tvm.IRModule`.
    """

    def __init__(self, module: Any) -> None:
        self._text = program_text(module)

    def schedule(self) -> Any:
        """Returns a TVM `Schedule` without instructions, which shares nothing with another."""
        from tvm.s_tir import Schedule

        return Schedule(program_of(self._text))
