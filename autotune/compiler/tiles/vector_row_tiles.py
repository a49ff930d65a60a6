"""Tiles of depthwise convolutions on a CPU, with rows as vectors. This module does not import TVM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import VectorRows
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of


@dataclass(frozen=True)
class Planes:
    """The sizes of a depthwise kernel. Each plane (one channel of one image) is computed by itself.

    Attributes:
        planes: Number of planes.
        rows, columns: Size of a plane, with columns padded; for a strided data gradient, of one of its phases.
        phases: Pixels of a position: the number of the stride's phases for a data gradient, otherwise 1.
        taps: Number of the filter's taps that contribute to a pixel.
    """

    planes: int
    rows: int
    columns: int
    phases: int
    taps: int


@dataclass(frozen=True)
class VectorRowTile:
    """All decisions of the schedule.

    Attributes:
        jobs: Shares of the planes, which are distributed over threads. The planes of a share use the same memory.
        rows: Neighbouring rows whose results are in registers at once.
        lanes: Neighbouring columns, as vectors.
    """

    jobs: int
    rows: int
    lanes: int


VECTOR_ROW_DECISIONS = names_of(VectorRowTile)


class VectorRowTiles(TileSpace[VectorRowTile]):
    """The tiles that a rule allows for a depthwise kernel.

    Args:
        planes: The sizes to tile.
        rule: The allowed values.
        seed: Seed of the random draws.
    """

    def __init__(self, planes: Planes, rule: VectorRows, seed: int) -> None:
        choices = {
            "jobs": dividing(rule.jobs if rule.threads else (1,), planes.planes),
            "rows": dividing(rule.rows, planes.rows),
            "lanes": dividing(rule.lanes, planes.columns),
        }
        super().__init__(VectorRowTile, choices, seed)
        self.planes = planes
        least = min(choices["rows"]) * min(choices["lanes"]) * planes.phases
        self._most = max(rule.most_accumulators, least)

    def fits(self, tile: VectorRowTile) -> bool:
        """See `TileSpace`."""
        planes = self.planes
        return (
            planes.planes % tile.jobs == 0
            and planes.rows % tile.rows == 0
            and planes.columns % tile.lanes == 0
            and tile.rows * tile.lanes * planes.phases <= self._most
        )

    def features(self, tile: VectorRowTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        planes = self.planes
        sizes = (
            planes.planes, planes.rows, planes.columns, planes.phases, planes.taps,
            tile.jobs, tile.rows, tile.lanes,
            tile.rows * tile.lanes * planes.phases, planes.planes // tile.jobs,
            planes.rows // tile.rows * (planes.columns // tile.lanes),
        )  # fmt: skip
        return np.array([*map(math.log2, sizes)], dtype=np.float32)
