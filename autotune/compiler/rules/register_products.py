"""The schedule rule for matrix products on a CPU: tiles of results stay in vector registers during a reduction.

A step of the reduction multiplies a vector of neighbouring columns by one element of each row of a tile (the
innermost kernel of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008). As in
that paper, a long reduction is split into parts: all tiles of a thread's share add up one part before the next, so
that the part's operands stay in a cache. Which tile is fastest depends on the registers and on the caches, so a few
numbers are searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import (
    ALL_COLUMNS,
    APART,
    REGISTER_PRODUCT,
    TRANSFORM,
    TRANSFORMED,
)
from autotune.compiler.rules.register_loops import LINE, Made, copied, straight
from autotune.compiler.rules.streaming import stream_stages
from autotune.compiler.rules.tile_rules import (
    RESULT,
    SUMMED,
    PlainTiles,
    extents,
    followers,
    is_result,
    sampled,
)
from autotune.compiler.rules.transformed_products import transformed_product
from autotune.compiler.target import RegisterProduct
from autotune.compiler.tiles import REGISTER_DECISIONS, RegisterTile, RegisterTiles, Sums

_THREADS = 8
"""Threads that share what follows a product apart. Fewer threads share it as well."""


class RegisterProductsRule(PlainTiles):
    """The `TileRule` of matrix products on a CPU.

    Args:
        rule: The allowed values.
    """

    mark = REGISTER_PRODUCT
    made = RegisterTile

    def __init__(self, rule: RegisterProduct) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> RegisterTiles:
        """See `TileRule`."""
        *outer, rows, columns = extents(block, RESULT)
        *around, depth = extents(block, SUMMED)
        stacked = outer[-1] if outer else 1
        mark = int(block.annotations[self.mark])
        sums = Sums(
            math.prod(outer),
            rows,
            columns,
            depth,
            math.prod(around),
            stacked,
            mark == ALL_COLUMNS,
            mark == APART,
            int(block.annotations[TRANSFORM]) if mark == TRANSFORMED else 0,
        )
        return RegisterTiles(sums, self._rule, seed)

    def kind(self, tile: RegisterTile) -> tuple[int, int, bool, bool]:
        """See `TileRule`."""
        return tile.along, tile.vector, tile.parts > 1, tile.cuts > 1

    def sketch(self, sch: Any, block: Any, tiles: RegisterTiles, tile: RegisterTile) -> Any:
        """See `TileRule`."""
        choices = tiles.alike(tile)
        cut = {
            name: sampled(sch, choices[name], getattr(tile, name)) for name in REGISTER_DECISIONS
        }
        operands, following = sch.get_producers(block), _in_order(sch, block)
        apart: list[str] = []
        if tiles.sums.transformed:
            half, result, *after = following
            apart = [str(sch.get(one).name_hint) for one in after]
            shared, sums = transformed_product(sch, block, operands, half, result, tile, cut)
        else:
            if tiles.sums.apart:
                apart, following = [str(sch.get(one).name_hint) for one in following], []
            make = _in_parts if tile.parted else _at_once
            shared, sums = make(sch, block, following, tile, cut)
            shared += [copied(sch, one) for one in operands]
        if self._rule.threads:
            for loops in filter(None, shared):
                sch.parallel(sch.fuse(*loops))
        for one, first in sums:
            sch.decompose_reduction(one, first)
        return stream_stages(sch, apart, 4 * LINE, _THREADS if self._rule.threads else 1)


def _at_once(sch: Any, block: Any, following: Sequence[Any], tile: RegisterTile, cut: Any) -> Made:
    """Schedules a tile's whole reduction, and all blocks that follow it, before the next tile."""
    shape = extents(sch.get(block), RESULT)
    written = sch.cache_write(block, 0, "local")
    loops = sch.get_loops(block)
    tiles, own = _tiled(sch, loops[: len(shape)], tile, cut)
    *around, k = loops[len(shape) :]
    k, step = sch.split(k, [None, cut["steps"]])
    sch.reorder(*tiles, *around, k, step, *own)
    job, at = sch.split(sch.fuse(*tiles), [cut["jobs"], None])
    for one in (written, *following):
        sch.reverse_compute_at(one, at, preserve_unit_loops=True)
        if extents(sch.get(one), RESULT) == shape:
            straight(sch, sch.get_loops(one)[-len(own) :], tile.vector)
    sch.unroll(step)
    straight(sch, own, tile.vector)
    return [[job]], [(block, [*around, k][0])]


def _in_parts(sch: Any, block: Any, following: Sequence[Any], tile: RegisterTile, cut: Any) -> Made:
    """Schedules one part of the reduction in all tiles of a share, added to their results, before the next part."""
    shape = extents(sch.get(block), RESULT)
    *around, k = sch.get_loops(block)[len(shape) :]
    part = []
    if tile.parts > 1:
        turn, *around = sch.split(sch.fuse(*around), [cut["parts"], None])
        part.append(turn)
    if tile.cuts > 1:
        turn, k = sch.split(k, [cut["cuts"], None])
        part.append(turn)
    sch.reorder(*part, *around, k)
    summed = sch.rfactor(sch.fuse(*part), 0)
    *loops, part = sch.get_loops(block)
    tiles, own = _tiled(sch, loops, tile, cut)
    sch.reorder(part, *tiles, *own)
    sch.compute_at(summed, tiles[-1], preserve_unit_loops=True)
    sch.set_scope(summed, 0, "local")
    # Fused only now, because compute_at needs loops that have not been rewritten.
    job, at = sch.split(sch.fuse(*tiles), [cut["jobs"], None])
    sch.reorder(job, part, at)
    _, *inside = sch.get_loops(summed)[len(sch.get_loops(block)) - len(own) :]
    summing = inside[len(shape) - len(own) : len(shape)]
    *within, inner = inside[len(shape) :]
    inner, step = sch.split(inner, [None, cut["steps"]])
    sch.reorder(*within, inner, step, *summing)
    sch.unroll(step)
    straight(sch, summing, tile.vector)
    straight(sch, own, tile.vector)
    apart = [_apart(sch, one, shape, tile.vector) for one in following]
    return [[job], *apart], [(summed, [*within, inner][0]), (block, part)]


def _apart(sch: Any, block: Any, shape: list[int], vector: int) -> list[Any]:
    """Schedules a block that follows a product in parts, and returns its loops for threads to share."""
    sums = extents(sch.get(block), SUMMED)
    if len(sch.get_consumers(block)) == 1 and not sums and not is_result(sch, block):
        sch.compute_inline(block)
        return []
    outer: list[Any]
    *outer, last = sch.get_loops(block)
    if extents(sch.get(block), RESULT) == shape:
        last, lane = sch.split(last, [None, vector])
        sch.vectorize(lane)
        outer.append(last)
    return outer


def _tiled(sch: Any, loops: Sequence[Any], tile: RegisterTile, cut: Any) -> tuple[Any, list[Any]]:
    """Splits the loops over results into those over tiles, in their order, and those of a tile."""
    *outer, i, j = loops
    i, row = sch.split(i, [None, cut["rows"]])
    j, lane = sch.split(j, [None, cut["lanes"]])
    own = [row, lane]
    if outer:
        outer[-1], matrix = sch.split(outer[-1], [None, cut["stack"]])
        own.insert(0, matrix)
    return ((*outer, i, j) if tile.along else (j, *outer, i)), own


def _in_order(sch: Any, block: Any) -> list[Any]:
    """Returns the blocks that follow a block, each after those that it reads."""
    found = followers(sch, block)
    names = [str(sch.get(one).name_hint) for one in sch.get_child_blocks(sch.get_sblock("root"))]
    return [found[name] for name in names if name in found]
