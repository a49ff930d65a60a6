"""The schedule rule for depthwise convolutions: a work-item keeps the inputs of its windows in registers.

A depthwise kernel does few operations per byte, so each element should be read about once. A work-item reads the
pixels of its neighbouring windows into registers, including the border's zeros, and uses them for all its results.
The weight gradient is a sum over whole planes: each work-item has its own sums for all taps, a tree in local memory
adds up the sums of a work-group, and a second kernel adds up those of the work-groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import WINDOW
from autotune.compiler.programs import IMAGE, reads_images
from autotune.compiler.rules.tile_rules import (
    add_parts,
    into_registers,
    joined_consumers,
    sampled,
    side_items,
)
from autotune.compiler.target import Depthwise, Limits
from autotune.compiler.tiles import WINDOW_DECISIONS, DepthwiseTile, DepthwiseTiles, Window


class DepthwiseRule:
    """The `TileRule` of depthwise convolutions.

    Args:
        rule: The allowed values.
        limits: Limits of a work-group.
    """

    mark = WINDOW

    def __init__(self, rule: Depthwise, limits: Limits) -> None:
        self._rule = rule
        self._limits = limits

    def tiles(self, block: Any, seed: int) -> DepthwiseTiles:
        """See `TileRule`."""
        filters, *steps = (int(one) for one in block.annotations[WINDOW])
        extents = [int(var.dom.extent) for var in block.iter_vars]
        if filters:
            channels, r, s, planes, rows, columns = extents
            phases, taps = (1, 1), (r, s)
        else:
            planes, rows, columns, u, v, r, s = extents
            channels, phases, taps = 1, (u, v), (r, s)
        window = Window(
            bool(filters), channels, planes, rows, columns, phases, taps,
            (steps[0], steps[1]), (steps[2], steps[3]),
        )  # fmt: skip
        return DepthwiseTiles(window, self._rule, self._limits, seed)

    def kind(self, tile: DepthwiseTile) -> bool:
        """See `TileRule`: whether the input is read as an image."""
        return tile.image

    def decisions(self, tile: DepthwiseTile) -> Sequence[str]:
        """See `TileRule`."""
        return WINDOW_DECISIONS

    def tile(self, decided: Sequence[int], trace: Any) -> DepthwiseTile:
        """See `TileRule`."""
        return DepthwiseTile(
            **dict(zip(WINDOW_DECISIONS, decided, strict=True)), image=reads_images(trace)
        )

    def sketch(self, sch: Any, block: Any, tiles: DepthwiseTiles, tile: DepthwiseTile) -> Any:
        """See `TileRule`."""
        cuts = [sampled(sch, tiles.choices[name], getattr(tile, name)) for name in WINDOW_DECISIONS]
        items = side_items(self._limits)
        last = joined_consumers(sch, block, items)
        if tile.image:
            # Filters are not read as images: they are few, and their image would need rows as long as the planes'
            # rows.
            for operand in sch.get_producers(block)[: 2 if tiles.window.filters else 1]:
                sch.annotate(operand, IMAGE, 1)
        if tiles.window.filters:
            _filters(sch, block, cuts, items)
        else:
            _images(sch, block, cuts)
        # At the end, because moving a block removes its guard.
        sch.reverse_compute_inline(last)
        return sch


def _images(sch: Any, block: Any, cuts: Sequence[Any]) -> None:
    """Schedules a kernel whose result is images: a work-item makes neighbouring pixels of one plane."""
    planes, row_items, own_rows, column_items, own_columns = cuts
    written = sch.cache_write(block, 0, "local")
    operands = sch.get_producers(block)
    p, y, z, u, v, r, s = sch.get_loops(block)
    plane_group, plane = sch.split(p, [None, planes])
    row_group, row_item, row = sch.split(y, [None, row_items, own_rows])
    column_group, column_item, column = sch.split(z, [None, column_items, own_columns])
    sch.reorder(
        plane_group, row_group, column_group, plane, row_item, column_item,
        r, s, row, column, u, v,
    )  # fmt: skip
    sch.bind(plane_group, "blockIdx.y")
    sch.bind(sch.fuse(row_group, column_group), "blockIdx.x")
    sch.bind(plane, "threadIdx.z")
    sch.bind(row_item, "threadIdx.y")
    sch.bind(column_item, "threadIdx.x")
    sch.reverse_compute_at(written, column_item, preserve_unit_loops=True)
    outside = len(sch.get_loops(block)) - len((r, s, row, column, u, v))
    into_registers(sch, operands, column_item)
    for loop in (r, s, row, column, u, v, *sch.get_loops(written)[outside:]):
        sch.unroll(loop)
    sch.decompose_reduction(block, r)


def _filters(sch: Any, block: Any, cuts: Sequence[Any], items: int) -> None:
    """Schedules a kernel whose result is filters: a work-group sums some planes of one channel."""
    planes, row_items, own_rows, column_items, own_columns = cuts
    parts, _ = sch.split(sch.get_loops(block)[3], [None, planes])
    group = sch.rfactor(parts, 0)
    channel, r, s, parts, plane, y, z = sch.get_loops(group)
    row_step, row_item, row = sch.split(y, [None, row_items, own_rows])
    column_step, column_item, column = sch.split(z, [None, column_items, own_columns])
    sch.reorder(row_item, column_item, plane, row_step, column_step, row, column)
    own = sch.rfactor(sch.fuse(row_item, column_item), 0)

    channel, r, s, parts, item = sch.get_loops(group)
    sch.reorder(parts, channel, r, s, item)
    sch.bind(parts, "blockIdx.y")
    sch.bind(channel, "blockIdx.x")
    sch.set_scope(own, 0, "local")
    sch.compute_at(own, channel, preserve_unit_loops=True)
    sch.bind(item, "threadIdx.x")

    item, _, _, r, s, plane, row_step, column_step, row, column = sch.get_loops(own)[2:]
    sch.bind(item, "threadIdx.x")
    sch.reorder(plane, row_step, column_step, row, column, r, s)
    into_registers(sch, sch.get_producers(own), column_step)
    for loop in (row, column, r, s):
        sch.unroll(loop)
    sch.decompose_reduction(own, plane)
    add_parts(sch, block, items)
