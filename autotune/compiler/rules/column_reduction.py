"""The schedule rule for column reductions on a CPU: vectors of columns are summed in registers, row by row.

Sums over the pixels of a batch with channels last, such as the statistics of batch normalisation, are limited by
reading memory. So all sums are computed in one pass, each is stored only once, and threads share the blocks of
rows.
"""

from __future__ import annotations

from typing import Any

from autotune.compiler.formulations import ROWS
from autotune.compiler.rules.tile_rules import PlainTiles, sampled
from autotune.compiler.target import ColumnReduction
from autotune.compiler.tiles import ROW_DECISIONS, ColumnTile, ColumnTiles, Rows


class ColumnReductionRule(PlainTiles):
    """The `TileRule` of column reductions.

    Args:
        rule: The allowed values.
    """

    mark = ROWS
    made = ColumnTile

    def __init__(self, rule: ColumnReduction) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> ColumnTiles:
        """See `TileRule`."""
        blocks, sums, columns, rows = (int(var.dom.extent) for var in block.iter_vars)
        return ColumnTiles(Rows(blocks, sums, columns, rows), self._rule, seed)

    def sketch(self, sch: Any, block: Any, tiles: ColumnTiles, tile: ColumnTile) -> Any:
        """See `TileRule`."""
        columns, unrolled = (
            sampled(sch, tiles.choices[one], getattr(tile, one)) for one in ROW_DECISIONS
        )
        others = [
            one
            for one in sch.get_child_blocks(sch.get_sblock("root"))
            if str(sch.get(one).name_hint) != str(sch.get(block).name_hint)
        ]
        written = sch.cache_write(block, 0, "local")
        part, which, column, row = sch.get_loops(block)
        column, lanes = sch.split(column, [None, columns])
        row, step = sch.split(row, [None, unrolled])
        sch.reorder(part, column, row, step, which, lanes)
        job = sch.fuse(part, column)
        sch.reverse_compute_at(written, job, preserve_unit_loops=True)
        *_, sums, kept = sch.get_loops(written)
        for loop in (step, which, sums):
            sch.unroll(loop)
        for loop in (lanes, kept):
            sch.vectorize(loop)
        if self._rule.threads:
            sch.parallel(job)
        sch.decompose_reduction(block, row)
        for one in others:
            _in_vectors(sch, one, columns)
        return sch


def _in_vectors(sch: Any, block: Any, columns: Any) -> None:
    """Vectorises a block that works by column, or that sums over the blocks of rows."""
    column, *summed = sch.get_loops(block)
    column, lanes = sch.split(column, [None, columns])
    sch.reorder(column, *summed, lanes)
    sch.vectorize(lanes)
    if summed:
        sch.decompose_reduction(block, summed[0])
