"""The schedule rule for depthwise convolutions on a CPU: rows of a plane are vectors, summed in registers.

With channels first, a row's pixels are contiguous in memory, so a vector of pixels is multiplied by one weight at a
time. A thread copies a plane, with zeros around it, into its own memory, which stays in the cache. So vector code
needs no bounds tests. The sums of some rows are kept in registers over all taps.
"""

from __future__ import annotations

from typing import Any

from autotune.compiler.formulations import VECTOR_ROWS
from autotune.compiler.rules.tile_rules import PlainTiles, joined_chain, sampled
from autotune.compiler.target import VectorRows
from autotune.compiler.tiles import VECTOR_ROW_DECISIONS, Planes, VectorRowTile, VectorRowTiles


class VectorRowsRule(PlainTiles):
    """The `TileRule` of depthwise convolutions in vector rows.

    Args:
        rule: The allowed values.
    """

    mark = VECTOR_ROWS
    made = VectorRowTile

    def __init__(self, rule: VectorRows) -> None:
        self._rule = rule

    def tiles(self, block: Any, seed: int) -> VectorRowTiles:
        """See `TileRule`."""
        planes, rows, columns, u, v, r, s = (int(var.dom.extent) for var in block.iter_vars)
        return VectorRowTiles(Planes(planes, rows, columns, u * v, r * s), self._rule, seed)

    def sketch(self, sch: Any, block: Any, tiles: VectorRowTiles, tile: VectorRowTile) -> Any:
        """See `TileRule`."""
        jobs, rows, lanes = (
            sampled(sch, tiles.choices[one], getattr(tile, one)) for one in VECTOR_ROW_DECISIONS
        )
        seen, taps = sch.get_producers(block)
        sch.compute_inline(taps)
        last = joined_chain(sch, block)
        written = sch.cache_write(block, 0, "local")
        plane, y, z, u, v, r, s = sch.get_loops(block)
        job, plane = sch.split(plane, [jobs, None])
        y, row = sch.split(y, [None, rows])
        z, lane = sch.split(z, [None, lanes])
        sch.reorder(job, plane, y, z, r, s, row, u, v, lane)
        sch.reverse_compute_at(written, z, preserve_unit_loops=True)
        sch.compute_at(seen, plane, preserve_unit_loops=True)
        kept_row, kept_lane, *kept_phases = sch.get_loops(written)[-4:]
        sch.reorder(kept_row, *kept_phases, kept_lane)
        for loop in (r, s, row, u, v, kept_row, *kept_phases):
            sch.unroll(loop)
        for loop in (lane, kept_lane):
            sch.vectorize(loop)
        if self._rule.threads:
            sch.parallel(job)
        sch.decompose_reduction(block, r)
        if tiles.planes.phases == 1:
            # Copies the rows without their padding: vectors are faster than a guard for each element.
            sch.reverse_compute_at(last, y, preserve_unit_loops=True)
        else:
            # At the end, because moving a block removes its guard.
            sch.reverse_compute_inline(last)
        return sch
