"""Loops of products on a CPU: straight-line code of a tile, and copies of operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LINE = 16
"""Number of floats in a cache line."""
Made = tuple[list[list[Any]], list[tuple[Any, Any]]]
"""Loop nests that threads share, and blocks that sum, each with the outermost loop of its sum."""


def straight(sch: Any, own: Sequence[Any], vector: int) -> None:
    """Makes straight-line code of a tile, in vectors of the only length that LLVM keeps in registers."""
    *rows, lane = own
    one, lane = sch.split(lane, [None, vector])
    for loop in (*rows, one):
        sch.unroll(loop)
    sch.vectorize(lane)


def copied(sch: Any, operand: Any) -> list[Any]:
    """Schedules the copy of an operand, and returns its loops for threads to share.

    A transposition is done in squares, whose cache lines stay in a cache.
    """
    outer: list[Any]
    *outer, a, b = sch.get_loops(operand)
    if _transposes(sch.get(operand)):
        (a, row), (b, column) = (sch.split(one, [None, _side(sch, one)]) for one in (a, b))
        sch.reorder(a, b, row, column)
        outer.append(a)
    return outer


def _transposes(block: Any) -> bool:
    """Returns whether a block's copy swaps the last two axes."""
    *_, row, column = (axis.var for axis in block.iter_vars)
    read = [axis.min for axis in block.reads[0].region]
    return bool(row.same_as(read[-1]) and any(column.same_as(one) for one in read[:-1]))


def _side(sch: Any, loop: Any) -> int:
    """Returns the side length of a square along a loop."""
    return math.gcd(int(sch.get(loop).extent), LINE)
