"""Tiles of a matrix product on a CPU, each kept in vector registers. This module does not import TVM."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target import RegisterProduct
from autotune.compiler.tiles.tile_space import Choices, TileSpace, dividing, names_of


@dataclass(frozen=True)
class Sums:
    """The sizes of sums of products over a reduction.

    Attributes:
        outer: Number of result matrices.
        rows, columns: Size of each matrix. Columns are contiguous in memory.
        depth: Steps of the innermost reduction.
        around: Steps of all other reductions together.
        stacked: Number of matrices along the innermost of their axes.
        whole: Whether tiles have all columns.
        apart: Whether what follows runs after all tiles.
        transformed: If operands and results are transforms of images, the rows of tiles of an image: shares of them
            are transformed, multiplied and transformed back at once. Otherwise 0.
    """

    outer: int
    rows: int
    columns: int
    depth: int
    around: int
    stacked: int
    whole: bool
    apart: bool = False
    transformed: int = 0


@dataclass(frozen=True)
class RegisterTile:
    """All decisions of a register product's schedule.

    Attributes:
        jobs: Shares of the tiles, which are distributed over threads.
        stack: Number of matrices of which a tile has a part.
        rows, lanes: Rows of the tile in each matrix, and its columns as vectors.
        steps: Steps of the reduction that are straight-line code.
        along: Whether the next tile follows along the columns; otherwise along the rows.
        parts, cuts: Parts of the outer reductions and of the innermost one. All tiles of a share add up one part
            before the next, so that the operands of this part stay in a cache.
    """

    jobs: int
    stack: int
    rows: int
    lanes: int
    steps: int
    along: int
    parts: int
    cuts: int

    @property
    def results(self) -> int:
        """Number of results of a tile."""
        return self.stack * self.rows * self.lanes

    @property
    def parted(self) -> bool:
        """Whether the reduction is split into parts."""
        return self.parts * self.cuts > 1

    @property
    def vector(self) -> int:
        """Number of lanes of a vector: the largest power of two, up to `_WIDEST`, that divides the tile's lanes."""
        return math.gcd(self.lanes, _WIDEST)


_WIDEST = 16
"""Lanes of the widest vector registers. A CPU with narrower registers uses several for one vector."""
REGISTER_DECISIONS = names_of(RegisterTile)


class RegisterTiles(TileSpace[RegisterTile]):
    """The tiles that a rule allows for a product.

    Args:
        sums: The sizes to tile.
        rule: The allowed values.
        seed: Seed of the random draws.
    """

    def __init__(self, sums: Sums, rule: RegisterProduct, seed: int) -> None:
        choices = {
            "jobs": rule.jobs if rule.threads else (1,),
            "stack": dividing(rule.stacks, sums.stacked),
            "rows": dividing(rule.rows, sums.rows),
            "lanes": [sums.columns] if sums.whole else dividing(rule.lanes, sums.columns),
            "steps": dividing(rule.steps, sums.depth),
            "along": (0, 1),
            "parts": (1,) if sums.transformed else _spaced_divisors(sums.around),
            "cuts": (1,) if sums.transformed else _spaced_divisors(sums.depth),
        }
        super().__init__(RegisterTile, choices, seed)
        self.sums = sums
        self._rule = rule
        # A small product has no tile with so many results. Or it has only one tile, which gives no work to a second
        # thread.
        most = math.prod(max(choices[name]) for name in ("stack", "rows", "lanes"))
        self._fewest = min(rule.fewest_accumulators, most // 2)

    def tiles(self, tile: RegisterTile) -> int:
        """Returns the number of tiles of all results."""
        return self.sums.outer * self.sums.rows * self.sums.columns // tile.results

    def _shares(self, tile: RegisterTile) -> bool:
        """Returns whether the jobs have equal shares: of tiles, or of whole images or equal parts of an image."""
        if not self.sums.transformed:
            return self.tiles(tile) % tile.jobs == 0
        share, rest = divmod(self.sums.stacked, tile.jobs)
        image = self.sums.transformed
        return not rest and share % tile.stack == 0 and (share % image == 0 or image % share == 0)

    def alike(self, tile: RegisterTile) -> Choices:
        """Returns the allowed values of the decisions in schedules of the same kind as the tile's."""
        lanes = [one for one in self.choices["lanes"] if math.gcd(one, _WIDEST) == tile.vector]
        same = {
            name: [n for n in self.choices[name] if (n > 1) == (getattr(tile, name) > 1)]
            for name in ("parts", "cuts")
        }
        return {**self.choices, "lanes": lanes, **same}

    def steps_of_a_part(self, tile: RegisterTile) -> int:
        """Returns the number of steps of the reduction in a part."""
        return self.sums.around * self.sums.depth // (tile.parts * tile.cuts)

    def fits(self, tile: RegisterTile) -> bool:
        """See `TileSpace`."""
        rule, sums = self._rule, self.sums
        return (
            self._shares(tile)
            and sums.stacked % tile.stack == 0
            and sums.rows % tile.rows == 0
            and sums.columns % tile.lanes == 0
            and sums.around % tile.parts == 0
            and sums.depth % (tile.cuts * tile.steps) == 0
            and (not tile.parted or self.steps_of_a_part(tile) >= rule.fewest_steps)
            and self._fewest <= tile.results <= rule.most_accumulators
            and tile.results * tile.steps <= rule.most_unrolled
        )

    def features(self, tile: RegisterTile) -> NDArray[np.float32]:
        """See `TileSpace`."""
        sums, results, tiles = self.sums, tile.results, self.tiles(tile)
        part = self.steps_of_a_part(tile)
        sizes = (
            sums.outer, sums.rows, sums.columns, sums.depth, sums.around,
            sums.stacked, tile.jobs, tile.stack, tile.rows, tile.lanes, tile.steps,
            results, results * tile.steps, tiles, tiles // tile.jobs,
            results / (tile.stack * tile.rows + tile.lanes), sums.rows // tile.rows, sums.columns // tile.lanes,
            tile.parts, tile.cuts, part, part * tile.lanes, part * sums.columns, part * sums.rows,
        )  # fmt: skip
        return np.array([*map(math.log2, sizes), tile.along], dtype=np.float32)


def _spaced_divisors(extent: int) -> list[int]:
    """Returns the divisors of an extent that are nearest to 1, 2, 4 and so on."""
    divisors = [one for one in range(1, extent + 1) if extent % one == 0]
    powers = range(extent.bit_length())
    return sorted({min(divisors, key=lambda one: abs(math.log2(one) - power)) for power in powers})
