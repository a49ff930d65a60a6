"""The schedule rule for concatenation on a CPU with channels last: no vector has channels of two parts.

The part of a channel is tested once per vector, not once per element. LLVM cannot vectorise the plain loop over all
channels, because it branches in every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.formulations import JOINED
from autotune.compiler.rules.tile_rules import PlainTiles, followers, is_result, sampled
from autotune.compiler.target import VectorConcat
from autotune.compiler.tiles import TileSpace, dividing


@dataclass(frozen=True)
class ConcatTile:
    """All decisions of the schedule.

    Attributes:
        lanes: Neighbouring channels of one part that are copied at once.
    """

    lanes: int


class ConcatTiles(TileSpace[ConcatTile]):
    """The tiles that a rule allows for a concatenation.

    Args:
        pixels: Number of pixels of all images.
        channels: Number of channels of the joined tensor.
        common: A number of channels that divides every part.
        rule: The allowed values.
        seed: Seed of the random draws.
    """

    def __init__(
        self, pixels: int, channels: int, common: int, rule: VectorConcat, seed: int
    ) -> None:
        super().__init__(ConcatTile, {"lanes": dividing(rule.lanes, common)}, seed)
        self._pixels, self._channels, self._common = pixels, channels, common

    def fits(self, tile: ConcatTile) -> bool:
        """See `TileSpace`."""
        return self._common % tile.lanes == 0

    def features(self, tile: ConcatTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        sizes = (self._pixels, self._channels, self._common, tile.lanes)
        return np.array([*map(math.log2, sizes)], dtype=np.float32)


class ConcatRule(PlainTiles):
    """The `TileRule` of concatenation.

    Args:
        rule: The allowed values.
    """

    mark = JOINED
    made = ConcatTile

    def __init__(self, rule: VectorConcat) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> ConcatTiles:
        """See `TileRule`."""
        images, pixels, channels = (int(var.dom.extent) for var in block.iter_vars)
        common = int(block.annotations[JOINED])
        return ConcatTiles(images * pixels, channels, common, self._rule, seed)

    def sketch(self, sch: Any, block: Any, tiles: ConcatTiles, tile: ConcatTile) -> Any:
        """See `TileRule`."""
        lanes = sampled(sch, tiles.choices["lanes"], tile.lanes)
        for one in (block, *followers(sch, block).values()):
            if not is_result(sch, one):
                sch.compute_inline(one)
                continue
            *outer, along = sch.get_loops(one)
            along, vector = sch.split(along, [None, lanes])
            sch.vectorize(vector)
            job = sch.fuse(*outer) if outer else along
            if self._rule.threads:
                sch.parallel(job)
        return sch
