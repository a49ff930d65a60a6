"""Tiles of attention, in strips of scores. This module does not import TVM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import AttentionStrips, GroupAttention, Limits
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of

_LANES = 16
"""Parts of a row's sum, and of its largest score."""


@dataclass(frozen=True)
class Strips:
    """The sizes of an attention's kernel.

    Attributes:
        heads: Number of heads, over all samples, that are computed by themselves.
        shared: Heads of queries whose scores a strip has.
        rows: Rows of a head's scores: queries, or keys for the gradients of keys and values; padded.
        columns: Length of a row, padded.
        depth: Elements of a head.
        products: Number of products of this depth that make a strip.
        results: Number of products with a strip.
    """

    heads: int
    shared: int
    rows: int
    columns: int
    depth: int
    products: int
    results: int


@dataclass(frozen=True)
class StripTile:
    """All decisions of the schedule.

    Attributes:
        strip: Neighbouring rows whose scores are in memory at once.
        rows, lanes: Rows and neighbouring columns of scores that are summed in registers.
        steps: Steps of their sums that are straight-line code.
        result_rows, result_lanes, result_steps: The same for the products with a strip.
    """

    strip: int
    rows: int
    lanes: int
    steps: int
    result_rows: int
    result_lanes: int
    result_steps: int


STRIP_DECISIONS = names_of(StripTile)


def _choices(strips: Strips, rule: AttentionStrips | GroupAttention) -> dict[str, Sequence[int]]:
    return {
        "strip": dividing(rule.strips, strips.rows),
        "rows": dividing(rule.rows, strips.rows),
        "lanes": dividing(rule.lanes, strips.columns),
        "steps": dividing(rule.steps, strips.depth),
        "result_rows": dividing(rule.rows, strips.rows),
        "result_lanes": dividing(rule.lanes, strips.depth),
        "result_steps": dividing(rule.steps, strips.columns),
    }


def _divides(tile: StripTile, strips: Strips) -> bool:
    return (
        strips.rows % tile.strip == 0
        and tile.strip % tile.rows == 0
        and tile.strip % tile.result_rows == 0
        and strips.columns % tile.lanes == 0
        and strips.depth % tile.steps == 0
        and strips.depth % tile.result_lanes == 0
        and strips.columns % tile.result_steps == 0
    )


class StripTiles(TileSpace[StripTile]):
    """The tiles that a rule allows for an attention's kernel.

    Args:
        strips: The sizes to tile.
        rule: The allowed values.
        seed: Seed of the random draws.
    """

    def __init__(self, strips: Strips, rule: AttentionStrips, seed: int) -> None:
        self.strips = strips
        choices = _choices(strips, rule)
        super().__init__(StripTile, choices, seed)
        self._most = max(
            rule.most_accumulators,
            strips.products * min(choices["rows"]) * min(choices["lanes"]),
            min(choices["result_rows"]) * min(choices["result_lanes"]),
        )
        self._most_unrolled = max(rule.most_unrolled, self._most)

    def fits(self, tile: StripTile) -> bool:
        """See `TileSpace`."""
        strips = self.strips
        own = strips.products * tile.rows * tile.lanes
        result = tile.result_rows * tile.result_lanes
        return (
            _divides(tile, strips)
            and max(own, result) <= self._most
            and max(own * tile.steps, result * tile.result_steps * strips.results)
            <= self._most_unrolled
        )

    def features(self, tile: StripTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        strips = self.strips
        sizes = (
            strips.heads, strips.shared, strips.rows, strips.columns, strips.depth, strips.products, strips.results,
            tile.strip, tile.rows, tile.lanes, tile.steps,
            tile.result_rows, tile.result_lanes, tile.result_steps,
            tile.rows * tile.lanes, tile.result_rows * tile.result_lanes,
            tile.strip * strips.columns * strips.shared, strips.heads * (strips.rows // tile.strip),
        )  # fmt: skip
        return np.array([*map(math.log2, sizes)], dtype=np.float32)


@dataclass(frozen=True)
class GroupTile(StripTile):
    """All decisions of the schedule for an OpenCL device.

    A work-group has a strip, in local memory, and each of its work-items sums tiles of it.

    Attributes:
        items: Work-items of a group.
    """

    items: int


GROUP_DECISIONS = names_of(GroupTile)


class GroupTiles(TileSpace[GroupTile]):
    """The tiles that a rule allows for an attention's kernel and that a device can run.

    Args:
        strips: The sizes to tile.
        rule: The allowed values.
        limits: Limits of a work-group.
        seed: Seed of the random draws.
    """

    def __init__(self, strips: Strips, rule: GroupAttention, limits: Limits, seed: int) -> None:
        self.strips = strips
        self._limits = limits
        choices = {**_choices(strips, rule), "items": rule.items}
        super().__init__(GroupTile, choices, seed)
        self._most, self._most_unrolled = rule.most_accumulators, rule.most_unrolled

    def local_bytes(self, tile: GroupTile) -> int:
        """Returns the local memory of a work-group: a strip of scores, what becomes of it, and its results."""
        strips = self.strips
        row = strips.columns * (2 if strips.products == 1 else strips.results)
        sums = 2 * _LANES + 3 if strips.products == 1 else 0
        return 4 * tile.strip * (row + sums + strips.results * strips.depth)

    def fits(self, tile: GroupTile) -> bool:
        """See `TileSpace`."""
        strips = self.strips
        own, result = tile.rows * tile.lanes, tile.result_rows * tile.result_lanes
        return (
            _divides(tile, strips)
            and (tile.strip * strips.columns) % (own * tile.items) == 0
            and (tile.strip * strips.depth) % (result * tile.items) == 0
            and max(strips.products * own, result) <= self._most
            and max(strips.products * own * tile.steps, result * tile.result_steps)
            <= self._most_unrolled
            and not self._limits.refused((tile.items, 1, 1), self.local_bytes(tile))
        )

    def features(self, tile: GroupTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        strips = self.strips
        own, result = tile.rows * tile.lanes, tile.result_rows * tile.result_lanes
        sizes = (
            strips.heads, strips.rows, strips.columns, strips.depth, strips.products, strips.results,
            tile.items, tile.strip, tile.rows, tile.lanes, tile.steps,
            tile.result_rows, tile.result_lanes, tile.result_steps, own, result,
            tile.strip * strips.columns // (own * tile.items),
            tile.strip * strips.depth // (result * tile.items),
            self.local_bytes(tile), strips.heads * (strips.rows // tile.strip),
        )  # fmt: skip
        return np.array([*map(math.log2, sizes)], dtype=np.float32)
