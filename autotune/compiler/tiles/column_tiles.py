"""Tiles of column reductions on a CPU. This module does not import TVM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import ColumnReduction
from autotune.compiler.tiles.tile_space import TileSpace, dividing, names_of


@dataclass(frozen=True)
class Rows:
    """The sizes of sums over the rows of a matrix, block by block.

    Attributes:
        blocks: Number of blocks of rows. Each block is summed on its own.
        sums: Number of sums that are computed together.
        columns: Number of columns, which are contiguous in memory.
        rows: Number of rows in a block.
    """

    blocks: int
    sums: int
    columns: int
    rows: int


@dataclass(frozen=True)
class ColumnTile:
    """All decisions of a column reduction's schedule.

    Attributes:
        columns: Neighbouring columns whose sums are kept in registers, as vectors.
        unrolled: Rows that are unrolled into straight-line code.
    """

    columns: int
    unrolled: int


ROW_DECISIONS = names_of(ColumnTile)


class ColumnTiles(TileSpace[ColumnTile]):
    """The tiles that a rule allows for a column reduction.

    Args:
        rows: The sizes to tile.
        rule: The allowed values.
        seed: Seed of the random draws.
    """

    def __init__(self, rows: Rows, rule: ColumnReduction, seed: int) -> None:
        choices = {
            "columns": dividing(rule.columns, rows.columns),
            "unrolled": dividing(rule.unrolled, rows.rows),
        }
        super().__init__(ColumnTile, choices, seed)
        self.rows = rows

    def fits(self, tile: ColumnTile) -> bool:
        """See `TileSpace`."""
        return self.rows.columns % tile.columns == 0 and self.rows.rows % tile.unrolled == 0

    def features(self, tile: ColumnTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        rows = self.rows
        sizes = (
            rows.blocks, rows.sums, rows.columns, rows.rows, tile.columns, tile.unrolled,
            tile.columns * rows.sums, rows.columns // tile.columns, tile.columns * tile.unrolled,
        )  # fmt: skip
        return np.array([*map(math.log2, sizes)], dtype=np.float32)
