"""Tiles of a depthwise convolution and its gradients on a GPU: no TVM here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import Depthwise, Limits
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of


@dataclass(frozen=True)
class Window:
    """A depthwise kernel, each of whose planes (a channel of an image) is computed by itself.

    Attributes:
        filters: Whether its result is filters, summed over all pixels; else images.
        channels: Filters of the result; 1 for images, whose planes are all alike.
        planes: Planes: of the images, or those that are summed to a filter.
        rows, columns: Of a plane, padded; with a strided data gradient, of one of its phases.
        phases: Pixels of a position: rows and columns of the stride with a data gradient, else 1 and 1.
        taps: Rows and columns of the filter that a pixel takes.
        stride, dilation: Steps from a pixel to the next in what is read, and from a tap to the next.
    """

    filters: bool
    channels: int
    planes: int
    rows: int
    columns: int
    phases: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]


@dataclass(frozen=True)
class DepthwiseTile:
    """Every decision of a depthwise kernel's schedule.

    Attributes:
        planes: Planes of a work-group: side by side where images are made, one after the other where filters are.
        row_items, column_items: Work-items along a plane.
        rows, columns: Neighbouring positions of a work-item.
        image: Whether what windows see is read as an image, and of a sum over planes dy too; see `image_reads`.
    """

    planes: int
    row_items: int
    rows: int
    column_items: int
    columns: int
    image: bool = False


WINDOW_DECISIONS = names_of(DepthwiseTile, "image")
"""Decisions that a sketch samples."""


class DepthwiseTiles(TileSpace[DepthwiseTile]):
    """The tiles of a depthwise kernel that a rule has and a device can run.

    Args:
        window: What is cut.
        rule: The choices.
        limits: What a work-group may use.
        seed: Seed of what is drawn.
    """

    def __init__(self, window: Window, rule: Depthwise, limits: Limits, seed: int) -> None:
        choices = {
            "planes": dividing(rule.planes, window.planes),
            "row_items": dividing(rule.row_items, window.rows),
            "rows": dividing(rule.own, window.rows),
            "column_items": dividing(rule.column_items, window.columns),
            "columns": dividing(rule.own, window.columns),
            "image": rule.image_choices(limits),
        }
        super().__init__(DepthwiseTile, choices, seed)
        self.window = window
        self._limits = limits
        # A large filter fills the registers for a single pixel.
        self._most = max(rule.most_registers, self.registers(DepthwiseTile(1, 1, 1, 1, 1)))
        # A small plane has no more items than pixels.
        along = () if window.filters else ("planes",)
        most = math.prod(max(choices[name]) for name in (*along, "row_items", "column_items"))
        self._fewest = min(most, max(rule.fewest_items, limits.sub_group_size))

    def items(self, tile: DepthwiseTile) -> int:
        """Work-items of a work-group."""
        along = 1 if self.window.filters else tile.planes
        return along * tile.row_items * tile.column_items

    def registers(self, tile: DepthwiseTile) -> int:
        """Values that a work-item holds: what it reads, what it multiplies that by, and what it sums."""
        window = self.window
        own = tile.rows * tile.columns * math.prod(window.phases)
        filters = math.prod(window.taps) * math.prod(window.phases)
        return self.seen(tile) + own + filters

    def seen(self, tile: DepthwiseTile) -> int:
        """Elements under the windows of a work-item's positions."""
        window = self.window
        return math.prod(
            (size - 1) * stride + (taps - 1) * dilation + phases
            for size, stride, taps, dilation, phases in zip(
                (tile.rows, tile.columns), window.stride, window.taps, window.dilation,
                window.phases, strict=True,
            )
        )  # fmt: skip

    def fits(self, tile: DepthwiseTile) -> bool:
        """See `TileSpace`."""
        limits, window = self._limits, self.window
        items = self.items(tile)
        sizes = (tile.column_items, tile.row_items, tile.planes)
        if window.filters:
            # One dimension: a tree adds up what all items have. With a single item along an axis, TVM makes one
            # loop of that axis' steps and neighbours.
            if tile.row_items == 1 or tile.column_items == 1:
                return False
            sizes = (items, 1, 1)
        return (
            items >= self._fewest
            and not limits.refused(sizes, 0)
            and window.planes % tile.planes == 0
            and window.rows % (tile.row_items * tile.rows) == 0
            and window.columns % (tile.column_items * tile.columns) == 0
            and self.registers(tile) <= self._most
        )

    def features(self, tile: DepthwiseTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        window, items = self.window, self.items(tile)
        area = tile.row_items * tile.rows * tile.column_items * tile.columns
        groups = window.channels * window.planes // tile.planes
        if not window.filters:
            groups *= window.rows * window.columns // area
        own = tile.rows * tile.columns
        lanes = -(-items // self._limits.sub_group_size) * self._limits.sub_group_size
        sizes = (
            window.channels, window.planes, window.rows, window.columns,
            *window.phases, *window.taps, *window.stride,
            *(getattr(tile, name) for name in WINDOW_DECISIONS),
            tile.row_items * tile.rows, tile.column_items * tile.columns,
            items, lanes / items, groups, items * groups, own, self.registers(tile), self.seen(tile) / own,
        )  # fmt: skip
        return np.array([*map(math.log2, sizes), window.filters, tile.image], dtype=np.float32)
