"""Schedules a product of transforms: see the formulation `winograd_product`.

A share of the rows of tiles is transformed, multiplied and transformed back before the next share, so that its
transforms stay in a cache. The transforms of the filters are made once, before all shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import TRANSFORM
from autotune.compiler.rules.register_loops import LINE, Made, copied, straight
from autotune.compiler.tiles import RegisterTile


def transformed_product(
    sch: Any,
    block: Any,
    operands: Sequence[Any],
    half: Any,
    result: Any,
    tile: RegisterTile,
    cut: Any,
) -> Made:
    """Schedules everything up to the result, which is the second half of the last transform.

    Args:
        sch: The schedule.
        block: The product.
        operands: The transformed image and the transformed filters.
        half: The first half of the last transform.
        result: The result.
        tile: The tile.
        cut: The tile's decisions in the schedule, by name.
    """
    sch.unannotate(block, TRANSFORM)
    left, right = operands
    b, y, x, channel = sch.get_loops(result)
    side = sch.get(result).annotations[TRANSFORM]
    (y, i), (x, j) = (sch.split(one, [None, int(side)]) for one in (y, x))
    job, y = sch.split(sch.fuse(b, y), [cut["jobs"], None])
    channel, lane = _lanes(sch, channel)
    sch.reorder(job, y, x, channel, i, j, lane)
    sch.unannotate(result, TRANSFORM)
    for one in (half, block, left):
        sch.compute_at(one, job, preserve_unit_loops=True)
    _inside(sch, half, channel)
    _straight_line(sch, [i, j], lane)
    shared = [[job], _transform(sch, right, 0)]
    (first,) = sch.get_producers(left)
    (second,) = sch.get_producers(right)
    copies = (*sch.get_producers(first), *sch.get_producers(second))
    shared += [copied(sch, one) for one in copies]
    _transform(sch, left, 1)
    written = sch.cache_write(block, 0, "local")
    _, element, y, x, channel, step = sch.get_loops(block)
    y, matrix = sch.split(y, [None, cut["stack"]])
    x, row = sch.split(x, [None, cut["rows"]])
    channel, lane = sch.split(channel, [None, cut["lanes"]])
    step, steps = sch.split(step, [None, cut["steps"]])
    own = [matrix, row, lane]
    order = (y, x, channel) if tile.along else (channel, y, x)
    sch.reorder(element, *order, step, steps, *own)
    sch.reverse_compute_at(written, order[-1], preserve_unit_loops=True)
    straight(sch, sch.get_loops(written)[-len(own) :], tile.vector)
    sch.unroll(steps)
    straight(sch, own, tile.vector)
    return shared, [(block, step)]


def _transform(sch: Any, transform: Any, outside: int) -> list[Any]:
    """Schedules a transform as straight-line code for each tile and vector of channels.

    Args:
        sch: The schedule.
        transform: Block of the transform's second half.
        outside: Number of loops around it.

    Returns:
        Loops for threads to share.
    """
    sch.unannotate(transform, TRANSFORM)
    (half,) = sch.get_producers(transform)
    element, *tiles, channel = sch.get_loops(transform)[outside:]
    channel, lane = _lanes(sch, channel)
    sch.reorder(*tiles, channel, element, lane)
    _inside(sch, half, channel)
    _straight_line(sch, [element], lane)
    return list(tiles)


def _lanes(sch: Any, channel: Any) -> Any:
    return sch.split(channel, [None, math.gcd(int(sch.get(channel).extent), LINE)])


def _inside(sch: Any, half: Any, loop: Any) -> None:
    """Computes the first half of a transform in registers, for one iteration of a loop."""
    sch.compute_at(half, loop, preserve_unit_loops=True)
    sch.set_scope(half, 0, "local")
    *loops, lane = sch.get_loops(half)[-4:]
    _straight_line(sch, loops, lane)


def _straight_line(sch: Any, loops: Sequence[Any], lane: Any) -> None:
    for loop in loops:
        sch.unroll(loop)
    sch.vectorize(lane)
