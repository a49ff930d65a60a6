"""The schedule rule for attention on a CPU: strips of scores that stay in a cache.

Threads take strips. A strip's products are computed tile by tile in registers, what the scores become is written to
the strip, and the products with it follow at once (Rabe and Staats, "Self-attention does not need O(n^2) memory",
2021). A strip has whole rows, so that a row's largest score is known before its exponentials are summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from autotune.compiler.formulations import ATTENTION
from autotune.compiler.rules.register_loops import LINE, copied, straight
from autotune.compiler.rules.streaming import names_of_blocks, stream_stages
from autotune.compiler.rules.tile_rules import RESULT, SUMMED, PlainTiles, extents, sampled
from autotune.compiler.target import AttentionStrips
from autotune.compiler.tiles import STRIP_DECISIONS, Strips, StripTile, StripTiles

_THREADS = 8
"""Threads that share what follows the results. Fewer threads share it as well."""
_BY_LANE = ("peaks", "sums")
"""Blocks that go along a row, vector by vector."""
PRODUCT = "acc"
"""The block of the products with a strip."""
RESULTS = ("o", "lse", "dq", "dkv")
_INSIDE = ("peaks", "top", "p", "sums", "total", "some", PRODUCT, *RESULTS)
"""Blocks that end a strip, and all that are computed strip by strip, as `formulations.attention` names them."""


class AttentionStripsRule(PlainTiles):
    """The `TileRule` of attention on a CPU.

    Args:
        rule: The allowed values.
    """

    mark = ATTENTION
    made = StripTile

    def __init__(self, rule: AttentionStrips) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> StripTiles:
        """See `TileRule`."""
        return StripTiles(sizes_of(block, self.mark), self._rule, seed)

    def sketch(self, sch: Any, block: Any, tiles: StripTiles, tile: StripTile) -> Any:
        """See `TileRule`."""
        cut = {
            name: sampled(sch, tiles.choices[name], getattr(tile, name)) for name in STRIP_DECISIONS
        }
        vector = math.gcd(LINE, tile.lanes)
        blocks = blocks_of(sch, block)

        strip, _, column, inner = cut_scores(sch, block, cut)
        for name in blocks.inside:
            sch.reverse_compute_at(sch.get_sblock(name), strip, preserve_unit_loops=True)
        sums = [_tile_of_scores(sch, one, column, cut["steps"], vector) for one in blocks.products]
        _write_strip(sch, inner, vector)
        for name in blocks.inside:
            one = sch.get_sblock(name)
            if name == PRODUCT:
                sums.append(_products_with_strip(sch, one, cut, math.gcd(LINE, tile.result_lanes)))
            else:
                sums += _row_by_row(sch, one, along=name in _BY_LANE)
        shared = [sch.get_loops(block)[:3], *(copied(sch, copy) for copy in blocks.copies)]
        if self._rule.threads:
            for loops in shared:
                sch.parallel(sch.fuse(*loops))
        for one, first in sums:
            sch.decompose_reduction(one, first)
        return stream_stages(sch, blocks.rest, 4 * LINE, _THREADS if self._rule.threads else 1)


def sizes_of(block: Any, mark: str) -> Strips:
    """Returns the sizes of a marked block."""
    depth, products = (int(value) for value in block.annotations[mark])
    samples, heads, *axes, columns = extents(block, RESULT)
    shared, rows, results = axes if len(axes) > 1 else (1, *axes, 1)
    return Strips(samples * heads, shared, rows, columns, depth, products, results)


@dataclass(frozen=True)
class Blocks:
    """The blocks of an attention's program around the one that writes a strip.

    Attributes:
        copies: Copies of operands.
        products: Products that make a strip.
        inside: Names of those that follow in a strip, in order.
        rest: Names of those that run after all strips.
    """

    copies: list[Any]
    products: list[Any]
    inside: list[str]
    rest: list[str]


def blocks_of(sch: Any, block: Any) -> Blocks:
    """Returns the blocks around the one that writes a strip."""
    names = names_of_blocks(sch)
    products = [one for one in sch.get_producers(block) if extents(sch.get(one), SUMMED)]
    inside = [name for name in names if name in _INSIDE]
    return Blocks(
        [copy for one in products for copy in sch.get_producers(one)],
        products,
        inside,
        names[1 + names.index(inside[-1]) :],
    )


def cut_scores(sch: Any, block: Any, cut: Any) -> tuple[Any, Any, Any, list[Any]]:
    """Cuts the scores into strips, and those into tiles.

    Returns:
        The loops over strips, over the rows and the columns of a strip's tiles, and those of a tile.
    """
    sample, head, *axes, column = sch.get_loops(block)
    shared, row, which = ([axes[0]], *axes[1:]) if len(axes) > 1 else ([], axes[0], None)
    strip, row = sch.split(row, [None, cut["strip"]])
    tile, row = sch.split(row, [None, cut["rows"]])
    column, lane = sch.split(column, [None, cut["lanes"]])
    inner = [row, lane] if which is None else [row, which, lane]
    sch.reorder(sample, head, strip, *shared, tile, column, *inner)
    return strip, tile, column, inner


def _tile_of_scores(sch: Any, block: Any, column: Any, steps: Any, vector: int) -> tuple[Any, Any]:
    """Sums a tile of scores in registers; returns the block and the outermost loop of its sum."""
    sch.compute_at(block, column, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    *_, row, lane, depth = sch.get_loops(block)
    depth, step = sch.split(depth, [None, steps])
    sch.reorder(depth, step, row, lane)
    sch.unroll(step)
    straight(sch, [row, lane], vector)
    return block, depth


def _write_strip(sch: Any, loops: list[Any], vector: int) -> None:
    """Writes a tile of the strip from registers: for each vector of scores, all that becomes of it."""
    row, *which, lane = loops
    part, lane = sch.split(lane, [None, vector])
    sch.reorder(row, part, *which, lane)
    for loop in (row, part, *which):
        sch.unroll(loop)
    sch.vectorize(lane)


def _products_with_strip(sch: Any, block: Any, cut: Any, vector: int) -> tuple[Any, Any]:
    """Sums tiles of products with a strip in registers; returns the block and the outermost loop of its sum."""
    *outer, row, head, column = own_loops(sch, block, RESULT)
    *shared, depth = own_loops(sch, block, SUMMED)
    row, in_row = sch.split(row, [None, cut["result_rows"]])
    column, lane = sch.split(column, [None, cut["result_lanes"]])
    depth, step = sch.split(depth, [None, cut["result_steps"]])
    sch.reorder(*outer, row, head, column, *shared, depth, step, in_row, lane)
    sch.unroll(step)
    straight(sch, [in_row, lane], vector)
    written = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(written, column, preserve_unit_loops=True)
    *_, in_row, _, lane = sch.get_loops(written)
    straight(sch, [in_row, lane], vector)
    for which in outer[:-1]:  # Which of two results: they read other operands.
        sch.unroll(which)
    return block, [*shared, depth][0]


def _row_by_row(sch: Any, block: Any, *, along: bool) -> list[tuple[Any, Any]]:
    """Schedules what follows in a strip; returns the block with the outermost loop of its sum, if it has one."""
    *_, last = own_loops(sch, block, RESULT)
    summed = own_loops(sch, block, SUMMED)
    vector = math.gcd(LINE, int(sch.get(last).extent))
    if along:
        sch.reorder(*summed, last)
    if (along or not summed) and vector > 1:
        _, lane = sch.split(last, [None, vector])
        sch.vectorize(lane)
    return [(block, summed[0])] if summed else []


def own_loops(sch: Any, block: Any, kind: int) -> list[Any]:
    """Returns the loops of a block's axes of one kind, where each axis has a loop."""
    axes = sch.get(block).iter_vars
    loops = sch.get_loops(block)[-len(axes) :]
    return [loop for loop, axis in zip(loops, axes, strict=True) if int(axis.iter_type) == kind]
