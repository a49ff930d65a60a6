"""The schedule rule of matrix products on a CPU: tiles of results stay in vector registers over a whole reduction.

A step of the reduction multiplies a vector of neighbouring columns by one element of each of a tile's rows (the
innermost kernel of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008). Which
tile is fastest depends on the registers and on what lies in which cache, so a few numbers are searched.
"""

from __future__ import annotations

import math
from typing import Any

from autotune.compiler.register_tiles import (
    NAMES,
    REGISTER_PRODUCT,
    RegisterTile,
    RegisterTiles,
    Sums,
)
from autotune.compiler.spaces import RegisterProduct
from autotune.compiler.tile_rules import PlainTiles, followers, sampled

_RESULT, _SUMMED = 0, 2
"""Kinds of a block's axes, as TVM numbers them."""


class RegisterProducts(PlainTiles):
    """The rule as a `TileRule`.

    Args:
        rule: The choices.
    """

    mark = REGISTER_PRODUCT
    made = RegisterTile

    def __init__(self, rule: RegisterProduct) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> RegisterTiles:
        """See `TileRule`."""
        *outer, rows, columns = _extents(block, _RESULT)
        *around, depth = _extents(block, _SUMMED)
        sums = Sums(math.prod(outer), rows, columns, depth, math.prod(around))
        return RegisterTiles(sums, self._rule, seed)

    def kind(self, tile: RegisterTile) -> int:
        """See `TileRule`."""
        return tile.along

    def sketch(self, sch: Any, block: Any, tiles: RegisterTiles, tile: RegisterTile) -> Any:
        """See `TileRule`."""
        jobs, rows, lanes, steps, _ = (
            sampled(sch, tiles.choices[one], getattr(tile, one)) for one in NAMES
        )
        shape = _extents(sch.get(block), _RESULT)
        operands, following = sch.get_producers(block), _in_order(sch, block)
        written = sch.cache_write(block, 0, "local")
        loops = sch.get_loops(block)
        *outer, i, j = loops[: len(shape)]
        *around, k = loops[len(shape) :]
        i, row = sch.split(i, [None, rows])
        j, lane = sch.split(j, [None, lanes])
        k, step = sch.split(k, [None, steps])
        order = (*outer, i, j) if tile.along else (j, *outer, i)
        sch.reorder(*order, *around, k, step, row, lane)
        job, at = sch.split(sch.fuse(*order), [jobs, None])
        for one in (written, *following):
            sch.reverse_compute_at(one, at, preserve_unit_loops=True)
            if _extents(sch.get(one), _RESULT) == shape:
                own_row, own_lane = sch.get_loops(one)[-2:]
                sch.unroll(own_row)
                sch.vectorize(own_lane)
        for loop in (step, row):
            sch.unroll(loop)
        sch.vectorize(lane)
        if self._rule.threads:
            for loop in (job, *(_all_but_two(sch, one) for one in operands)):
                sch.parallel(loop)
        sch.decompose_reduction(block, [*around, k][0])
        return sch


def _extents(block: Any, kind: int) -> list[int]:
    """Extents of a block's axes of a kind."""
    return [int(var.dom.extent) for var in block.iter_vars if int(var.iter_type) == kind]


def _all_but_two(sch: Any, operand: Any) -> Any:
    """The outer loops of what copies an operand, as one."""
    return sch.fuse(*sch.get_loops(operand)[:-2])


def _in_order(sch: Any, block: Any) -> list[Any]:
    """The blocks that follow one, each after those it reads."""
    found = followers(sch, block)
    names = [str(sch.get(one).name_hint) for one in sch.get_child_blocks(sch.get_sblock("root"))]
    return [found[name] for name in names if name in found]
