"""The schedule rule for attention on an OpenCL device: a work-group has a strip of scores in local memory.

Neighbouring work-items read neighbouring columns. As on a processor, a strip has whole rows (`attention_strips`).
How long a row may be depends on the local memory.
"""

from __future__ import annotations

from typing import Any

from autotune.compiler.formulations import ATTENTION
from autotune.compiler.rules.attention_strips import (
    PRODUCT,
    RESULTS,
    blocks_of,
    cut_scores,
    own_loops,
    sizes_of,
)
from autotune.compiler.rules.tile_rules import (
    RESULT,
    SUMMED,
    PlainTiles,
    among_items,
    extents,
    sampled,
    side_items,
)
from autotune.compiler.target import GroupAttention, Limits
from autotune.compiler.tiles import GROUP_DECISIONS, GroupTile, GroupTiles


class GroupAttentionRule(PlainTiles):
    """The `TileRule` of attention on an OpenCL device.

    Args:
        rule: The allowed values.
        limits: Limits of a work-group.
    """

    mark = ATTENTION
    made = GroupTile

    def __init__(self, rule: GroupAttention, limits: Limits) -> None:
        self._rule, self._limits = rule, limits

    def tiles(self, block: Any, seed: int) -> GroupTiles:
        """See `TileRule`."""
        return GroupTiles(sizes_of(block, self.mark), self._rule, self._limits, seed)

    def sketch(self, sch: Any, block: Any, tiles: GroupTiles, tile: GroupTile) -> Any:
        """See `TileRule`."""
        cut = {
            name: sampled(sch, tiles.choices[name], getattr(tile, name)) for name in GROUP_DECISIONS
        }
        blocks = blocks_of(sch, block)

        strip, tile, column, inner = cut_scores(sch, block, cut)
        for name in blocks.inside:
            sch.reverse_compute_at(sch.get_sblock(name), strip, preserve_unit_loops=True)
            if name not in RESULTS:
                sch.set_scope(sch.get_sblock(name), 0, "shared")
        sch.set_scope(block, 0, "shared")
        _, item = sch.split(sch.fuse(tile, column), [None, cut["items"]])
        sch.bind(item, "threadIdx.x")
        sums = [_own_scores(sch, one, item, cut["steps"]) for one in blocks.products]
        for loop in inner:
            sch.unroll(loop)
        for name in blocks.inside:
            one = sch.get_sblock(name)
            if name == PRODUCT:
                sums.append(_products_with_strip(sch, one, cut))
            else:
                sums += _of_items(sch, one, cut["items"])
        sch.bind(sch.fuse(*sch.get_loops(block)[:3]), "blockIdx.x")
        items = side_items(self._limits)
        for copy in blocks.copies:
            among_items(sch, sch.get_loops(copy), items)
        for name in blocks.rest:
            one = sch.get_sblock(name)
            count = len(extents(sch.get(one), SUMMED))
            loops = sch.get_loops(one)
            among_items(sch, loops[: len(loops) - count], items)
            if count:
                sums.append((one, sch.get_loops(one)[-count]))
        for one, first in sums:
            sch.decompose_reduction(one, first)
        return sch


def _own_scores(sch: Any, block: Any, item: Any, steps: Any) -> tuple[Any, Any]:
    """Sums a work-item's scores in registers; returns the block and the outermost loop of its sum."""
    sch.compute_at(block, item, preserve_unit_loops=True)
    sch.set_scope(block, 0, "local")
    *_, row, lane, depth = sch.get_loops(block)
    depth, step = sch.split(depth, [None, steps])
    sch.reorder(depth, step, row, lane)
    for loop in (step, row):
        sch.unroll(loop)
    sch.vectorize(lane)
    return block, depth


def _products_with_strip(sch: Any, block: Any, cut: Any) -> tuple[Any, Any]:
    """Sums a work-item's results in registers; returns the block and the outermost loop of its sum."""
    *outer, row, head, column = own_loops(sch, block, RESULT)
    *shared, depth = own_loops(sch, block, SUMMED)
    row, in_row = sch.split(row, [None, cut["result_rows"]])
    column, lane = sch.split(column, [None, cut["result_lanes"]])
    depth, step = sch.split(depth, [None, cut["result_steps"]])
    sch.reorder(*outer, head, row, column, *shared, depth, step, in_row, lane)
    _, item = sch.split(sch.fuse(row, column), [None, cut["items"]])
    sch.bind(item, "threadIdx.x")
    written = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(written, item, preserve_unit_loops=True)
    *_, in_written, _, lane_written = sch.get_loops(written)
    for loop in (*outer[:-1], step, in_row, in_written):
        sch.unroll(loop)
    for loop in (lane, lane_written):
        sch.vectorize(loop)
    return block, [*shared, depth][0]


def _of_items(sch: Any, block: Any, items: Any) -> list[tuple[Any, Any]]:
    """Gives a block's elements to the work-items; returns the block with the outermost loop of its sum, if any."""
    summed = own_loops(sch, block, SUMMED)
    _, item = sch.split(sch.fuse(*own_loops(sch, block, RESULT)), [None, items])
    sch.bind(item, "threadIdx.x")
    return [(block, summed[0])] if summed else []
