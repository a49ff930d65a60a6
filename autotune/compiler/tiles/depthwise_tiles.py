"""Tiles of a depthwise convolution and its gradients on a GPU. This module does not import TVM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import Depthwise, Limits
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of


@dataclass(frozen=True)
class Window:
    """The sizes of a depthwise kernel. Each plane (one channel of one image) is computed by itself.

    Attributes:
        filters: Whether the result is filters, summed over all pixels; otherwise it is images.
        channels: Number of filters in the result; 1 for images, since all their planes are alike.
        planes: Number of planes of the images, or of planes that are summed into one filter.
        rows, columns: Padded size of a plane; for a strided data gradient, of one of its phases.
        phases: Pixels of a position, as rows and columns: the stride for a data gradient, otherwise 1 and 1.
        taps: Rows and columns of the filter that contribute to a pixel.
        stride, dilation: Steps in the input from one pixel to the next, and from one tap to the next.
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
    """All decisions of a depthwise kernel's schedule.

    Attributes:
        planes: Planes of a work-group: in parallel if the result is images, one after the other if it is filters.
        row_items, column_items: Work-items along the rows and columns of a plane.
        rows, columns: Neighbouring positions of a work-item.
        image: Whether the input is read as an image; for a sum over planes, also dy. See `image_reads`.
    """

    planes: int
    row_items: int
    rows: int
    column_items: int
    columns: int
    image: bool = False


WINDOW_DECISIONS = names_of(DepthwiseTile, "image")
"""Decisions that are sampled in a sketch."""


class DepthwiseTiles(TileSpace[DepthwiseTile]):
    """The tiles that a rule allows for a depthwise kernel and that a device can run.

    Args:
        window: The sizes to tile.
        rule: The allowed values.
        limits: Limits of a work-group.
        seed: Seed of the random draws.
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
        # A large filter fills the registers even for a single pixel.
        self._most = max(rule.most_registers, self.registers(DepthwiseTile(1, 1, 1, 1, 1)))
        # A small plane cannot have more work-items than pixels.
        along = () if window.filters else ("planes",)
        most = math.prod(max(choices[name]) for name in (*along, "row_items", "column_items"))
        self._fewest = min(most, max(rule.fewest_items, limits.sub_group_size))

    def items(self, tile: DepthwiseTile) -> int:
        """Returns the number of work-items in a work-group."""
        along = 1 if self.window.filters else tile.planes
        return along * tile.row_items * tile.column_items

    def registers(self, tile: DepthwiseTile) -> int:
        """Returns the number of values that a work-item holds: its inputs, its filter values and its sums."""
        window = self.window
        own = tile.rows * tile.columns * math.prod(window.phases)
        filters = math.prod(window.taps) * math.prod(window.phases)
        return self.seen(tile) + own + filters

    def seen(self, tile: DepthwiseTile) -> int:
        """Returns the number of input elements under the windows of a work-item's positions."""
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
            # The group has one dimension, because a tree adds up the values of all work-items. With a single item
            # along an axis, TVM merges that axis' steps and neighbours into one loop.
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
