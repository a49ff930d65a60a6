"""Tiles of convolutions of images with few channels, and their data gradients, on a GPU. No TVM import here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import FewChannels, Limits
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of

_FLOAT_BYTES = 4
_VECTOR = 4


@dataclass(frozen=True)
class Layer:
    """The sizes of a kernel that computes one image from another, position by position.

    A position is a pixel; for a data gradient, it is one pixel for each phase of the stride.

    Attributes:
        gradient: Whether the kernel is a data gradient. Then all phases share a window.
        images, channels: Of the result.
        rows, columns: Number of positions, padded.
        phases: Rows and columns of pixels of a position; 1 and 1 for a forward pass.
        summed: Number of input channels, which are summed over.
        window: Rows and columns of the input that a position uses.
        taps: Rows and columns of the filter.
        stride: Steps in the input from one position to the next.
    """

    gradient: bool
    images: int
    channels: int
    rows: int
    columns: int
    phases: tuple[int, int]
    summed: int
    window: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]


@dataclass(frozen=True)
class LayerTile:
    """All decisions of a schedule for few channels.

    Attributes:
        channels: Channels of the result that a work-item computes.
        channel_items, row_items, column_items: Work-items of a work-group along channels and positions.
        rows, columns: Neighbouring positions of a work-item.
        deep: Input channels whose taps are gathered at once.
        image: Whether the input is read as an image; see `image_reads`.
    """

    channels: int
    channel_items: int
    row_items: int
    rows: int
    column_items: int
    columns: int
    deep: int
    image: bool = False

    @property
    def items(self) -> int:
        """Number of work-items in a work-group."""
        return self.channel_items * self.row_items * self.column_items


LAYER_DECISIONS = names_of(LayerTile, "image")
"""Decisions that are sampled in a sketch."""


class LayerTiles(TileSpace[LayerTile]):
    """The tiles that a rule allows for a layer with few channels and that a device can run.

    Args:
        layer: The sizes to tile.
        rule: The allowed values.
        limits: Limits of a work-group.
        seed: Seed of the random draws.
    """

    def __init__(self, layer: Layer, rule: FewChannels, limits: Limits, seed: int) -> None:
        channels = range(1, layer.channels + 1) if layer.gradient else rule.channels
        choices = {
            "channels": dividing(channels, layer.channels),
            "channel_items": (1,)
            if layer.gradient
            else dividing(rule.channel_items, layer.channels),
            "row_items": dividing(rule.row_items, layer.rows),
            "rows": dividing(rule.own, layer.rows),
            "column_items": dividing(rule.column_items, layer.columns),
            "columns": dividing(rule.own, layer.columns),
            "deep": dividing(rule.depths, layer.summed),
            "image": rule.image_choices(limits),
        }
        super().__init__(LayerTile, choices, seed)
        self.layer = layer
        self.staged = limits.local_memory == "local"
        """Whether taps go through local memory; otherwise they go straight into registers."""
        self._limits = limits
        neighbours = (layer.phases[1] * layer.window[1],) if layer.gradient else choices["channels"]
        self.vector = math.gcd(*neighbours, _VECTOR)
        """Number of taps that are read at once."""
        # Many phases fill the registers even for a single position. A large filter makes the program too long.
        least = LayerTile(**{name: min(choices[name]) for name in LAYER_DECISIONS}, image=False)
        self._most_registers = max(rule.most_registers, self.registers(least))
        self._most_unrolled = max(rule.most_unrolled, self.multiplied(least))
        # A small image cannot have more work-items than positions.
        most = max(choices["row_items"]) * max(choices["column_items"])
        self._fewest = min(most, max(rule.fewest_items, limits.sub_group_size))

    def results(self, tile: LayerTile) -> int:
        """Returns the number of results of a work-item."""
        return tile.channels * tile.rows * tile.columns * math.prod(self.layer.phases)

    def seen(self, tile: LayerTile) -> int:
        """Returns the number of elements that a work-item reads at once: its windows, or one column of them."""
        layer = self.layer
        high = (tile.rows - 1) * layer.stride[0] + layer.window[0]
        wide = (tile.columns - 1) * layer.stride[1] + 1
        return high * (wide + layer.window[1] - 1 if layer.gradient else wide)

    def registers(self, tile: LayerTile) -> int:
        """Returns the number of values that a work-item holds: results, inputs, and taps for one row of inputs."""
        layer = self.layer
        taps = layer.phases[1] * layer.window[1] if layer.gradient else tile.channels
        return self.results(tile) + self.seen(tile) + taps

    def multiplied(self, tile: LayerTile) -> int:
        """Returns the number of multiply-adds of a work-item in straight-line code."""
        high, wide = self.layer.taps
        return (
            tile.channels * tile.rows * tile.columns * high * (wide if self.layer.gradient else 1)
        )

    def gathered(self, tile: LayerTile) -> int:
        """Returns the number of taps that a work-group gathers at once, including taps that no pixel uses."""
        layer = self.layer
        channels = tile.channels * tile.channel_items
        return tile.deep * channels * math.prod(layer.phases) * math.prod(layer.window)

    def local_bytes(self, tile: LayerTile) -> int:
        """Returns the bytes of local memory of a work-group."""
        return self.gathered(tile) * _FLOAT_BYTES if self.staged else 0

    def fits(self, tile: LayerTile) -> bool:
        """See `TileSpace`."""
        limits, layer = self._limits, self.layer
        group = (tile.column_items, tile.row_items, tile.channel_items)
        return (
            tile.items >= self._fewest
            and not limits.refused(group, self.local_bytes(tile))
            and layer.channels % (tile.channels * tile.channel_items) == 0
            and layer.rows % (tile.row_items * tile.rows) == 0
            and layer.columns % (tile.column_items * tile.columns) == 0
            and self.registers(tile) <= self._most_registers
            and self.multiplied(tile) <= self._most_unrolled
        )

    def features(self, tile: LayerTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        layer, items = self.layer, tile.items
        positions = layer.rows * layer.columns // (tile.rows * tile.columns)
        launched = layer.images * positions * (layer.channels // tile.channels)
        lanes = -(-items // self._limits.sub_group_size) * self._limits.sub_group_size
        sizes = (
            layer.images, layer.channels, layer.rows, layer.columns, layer.summed,
            *layer.phases, *layer.window, *layer.taps, *layer.stride,
            *(getattr(tile, name) for name in LAYER_DECISIONS),
            tile.row_items * tile.rows, tile.column_items * tile.columns,
            items, lanes / items, launched, launched / items, self.results(tile), self.registers(tile),
            self.gathered(tile), self.gathered(tile) / items,
            self.multiplied(tile), self.multiplied(tile) / self.seen(tile),
        )  # fmt: skip
        return np.array([*map(math.log2, sizes), layer.gradient, tile.image], dtype=np.float32)
