"""The schedule rule for convolutions of images with few channels: windows in registers, taps in local memory.

A product would use each gathered element for few multiply-adds. Here a work-item reads the inputs under the windows
of some neighbouring positions into registers once. It multiplies them by taps that all work-items read from local
memory at the same time, as vectors: for a data gradient, the taps of one row of the filter; for a forward pass,
those of several filters. A separate kernel first puts the taps into this order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.compiler.formulations import FEW_CHANNELS
from autotune.compiler.programs import IMAGE, reads_images
from autotune.compiler.rules.tile_rules import (
    among_items,
    into_registers,
    joined_consumers,
    sampled,
    side_items,
)
from autotune.compiler.target import FewChannels, Limits
from autotune.compiler.tiles import LAYER_DECISIONS, Layer, LayerTile, LayerTiles


class FewChannelLayers:
    """The `TileRule` of convolutions of images with few channels.

    Args:
        rule: The allowed values.
        limits: Limits of a work-group.
    """

    mark = FEW_CHANNELS

    def __init__(self, rule: FewChannels, limits: Limits) -> None:
        self._rule = rule
        self._limits = limits

    def tiles(self, block: Any, seed: int) -> LayerTiles:
        """See `TileRule`."""
        gradient, r, s, *stride = (int(one) for one in block.annotations[FEW_CHANNELS])
        images, channels, rows, columns, u, v, k, e, f = (
            int(var.dom.extent) for var in block.iter_vars
        )
        layer = Layer(
            bool(gradient), images, channels, rows, columns, (u, v), k, (e, f), (r, s),
            (stride[0], stride[1]),
        )  # fmt: skip
        return LayerTiles(layer, self._rule, self._limits, seed)

    def kind(self, tile: LayerTile) -> bool:
        """See `TileRule`: whether the input is read as an image."""
        return tile.image

    def decisions(self, tile: LayerTile) -> Sequence[str]:
        """See `TileRule`."""
        return LAYER_DECISIONS

    def tile(self, decided: Sequence[int], trace: Any) -> LayerTile:
        """See `TileRule`."""
        return LayerTile(
            **dict(zip(LAYER_DECISIONS, decided, strict=True)), image=reads_images(trace)
        )

    def sketch(self, sch: Any, block: Any, tiles: LayerTiles, tile: LayerTile) -> Any:
        """See `TileRule`."""
        cuts = {
            name: sampled(sch, tiles.choices[name], getattr(tile, name)) for name in LAYER_DECISIONS
        }
        items = side_items(self._limits)
        last = joined_consumers(sch, block, items)
        seen, taps = sch.get_producers(block)
        if tile.image:
            sch.annotate(seen, IMAGE, 1)
        _cut(sch, block, cuts, tiles)
        among_items(sch, sch.get_loops(taps), items)
        # At the end, because moving a block removes its guard.
        sch.reverse_compute_inline(last)
        return sch


def _cut(sch: Any, block: Any, cuts: dict[str, Any], tiles: LayerTiles) -> None:
    """Splits positions and channels among work-items, and stages the operands of each work-item."""
    written = sch.cache_write(block, 0, "local")
    seen, _ = sch.get_producers(block)
    gradient = tiles.layer.gradient
    b, c, y, z, u, v, k, e, f = sch.get_loops(block)
    own = ("channels", "rows", "columns")
    items = tuple(cuts[name] for name in ("channel_items", "row_items", "column_items"))
    cut = [
        sch.split(loop, [None, item, cuts[name]])
        for loop, item, name in zip((c, y, z), items, own, strict=True)
    ]
    groups, shared, (channel, row, column) = zip(*cut, strict=True)
    steps, step = sch.split(k, [None, cuts["deep"]])
    # Inputs are read in the innermost outer loop, and used by all inner loops. Taps are read in loop e.
    if gradient:
        outer, inner = [steps, step], [channel, u, e, row, column, v, f]
    else:
        outer, inner = [steps, step, f], [e, row, column, channel, u, v]
    sch.reorder(b, *groups, *shared, *outer, *inner)
    sch.bind(sch.fuse(b, groups[0]), "blockIdx.y")
    sch.bind(sch.fuse(*groups[1:]), "blockIdx.x")
    axes = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
    for loop, axis in zip(shared, axes, strict=True):
        sch.bind(loop, axis)
    sch.reverse_compute_at(written, shared[-1], preserve_unit_loops=True)
    into_registers(sch, [seen], outer[-1])
    registers = sch.cache_read(block, 1, "local")
    sch.compute_at(registers, e, preserve_unit_loops=True)
    loop, lanes = sch.split(sch.get_loops(registers)[-1], [None, tiles.vector])
    sch.unroll(loop)
    sch.vectorize(lanes)
    if tiles.staged:
        tile = sch.cache_read(registers, 0, "shared")
        _stage(sch, tile, steps, list(zip(items, axes, strict=True)), tiles.vector)
    outside = len(sch.get_loops(block)) - len(outer) - len(inner)
    for loop in (*inner, *sch.get_loops(written)[outside:]):
        sch.unroll(loop)
    sch.decompose_reduction(block, steps)


def _stage(sch: Any, taps: Any, steps: Any, items: Sequence[tuple[Any, str]], vector: int) -> None:
    """Gathers taps into local memory, shared by all work-items of a group."""
    before = len(sch.get_loops(taps))
    sch.compute_at(taps, steps, preserve_unit_loops=True)
    whole = sch.fuse(*sch.get_loops(taps)[-before:])
    rounds, *shared, lanes = sch.split(whole, [None, *(count for count, _ in items), vector])
    for loop, (_, axis) in zip(shared, items, strict=True):
        sch.bind(loop, axis)
    sch.unroll(rounds)
    sch.vectorize(lanes)
