"""First schedules of kernels that memory limits, for a GPU: neighbouring work-items take neighbouring elements.

- Results that are contiguous in what is read have a work-item each.
- A reduction along what is contiguous has a work-group for each result; its work-items combine what they found.
- If there are too few results for the device, parts of the reduction are reduced apart. A second kernel combines
  them.
- A stage that reads the stage before it, at the same index, is computed by the same work-item.
"""

from __future__ import annotations

import math
from typing import Any

from autotune.compiler.rules.streaming import Row, inlined, names_of_blocks
from autotune.compiler.rules.streaming_access import Access, access_of
from autotune.compiler.rules.tile_rules import is_result, side_items
from autotune.compiler.target import Limits

_LANES = 4
"""Neighbouring floats of a work-item: loads of 16 bytes are the widest of most GPUs."""
_ITEMS_A_UNIT = 256
"""Work-items that keep a compute unit busy while others wait for memory."""
_FEWEST_ITEMS = 32
"""Fewest work-items of a group that divides the results; otherwise the last group has idle ones."""
_LEAST_OF_A_PART = 64
"""Fewest steps of a part of a reduction."""


def streamed_on_gpu(sch: Any, limits: Limits) -> Any:
    """Returns the schedule of a program for a GPU.

    Args:
        sch: TVM `Schedule` without instructions. Its function `main` has no contraction.
        limits: What the device can launch.
    """
    names = names_of_blocks(sch)
    left_out = inlined(sch, names)
    stages = _Stages(sch, limits)
    for name in names:
        if name not in left_out:
            stages.stage(name)
    return stages.sch


class _Stages:
    def __init__(self, sch: Any, limits: Limits) -> None:
        self.sch = sch
        self._items = side_items(limits)
        self._busy = limits.compute_units * _ITEMS_A_UNIT
        self._last: Row | None = None
        """The loop of a work-item of the last stage, if that has a result."""

    def stage(self, name: str, *, whole: bool = True) -> None:
        """Schedules a stage.

        Args:
            name: Its block.
            whole: Whether parts of it may be reduced apart; False for such a part.
        """
        if self._joined(name):
            return
        self._last = None
        sch = self.sch
        block = sch.get_sblock(name)
        access = access_of(sch, block)
        along = access.contiguous
        rows = along in access.reduced and access.extents[along] >= 2 * self._items
        results = math.prod(access.sizes) * (self._items if rows else 1)
        if whole and (parts := self._parts(access, results)):
            part, _ = sch.split(sch.get_loops(block)[access.longest], [parts, None])
            self.stage(str(sch.get(sch.rfactor(part, 0)).name_hint), whole=False)
            self._each(block, access_of(sch, block))
            self._last = None
        elif rows:
            self._group(block, access, along)
        else:
            item = self._each(block, access)
            # Idle work-items would take part in a stage that joins.
            fills = math.prod(access.sizes) % int(sch.get(item).extent) == 0
            self._last = Row(item, name, access.sizes) if fills else None

    def _joined(self, name: str) -> bool:
        """Computes a stage in the work-items of the last one, if it can be; returns whether it is."""
        from tvm.s_tir import ScheduleError

        block = self.sch.get_sblock(name)
        access = access_of(self.sch, block)
        last = self._last
        if last is None or access.reduced or not last.fits(self.sch, block, access):
            return False
        tried = self.sch.copy()
        try:
            tried.reverse_compute_at(block, last.loop, preserve_unit_loops=True)
            if not is_result(tried, producer := tried.get_sblock(last.stage)):
                if len(tried.get_consumers(producer)) > 1:
                    return False
                tried.set_scope(producer, 0, "local")
        except ScheduleError:
            return False
        self.sch = tried
        self._last = Row(last.loop, name, last.sizes)
        return True

    def _each(self, block: Any, access: Access) -> Any:
        """A work-item for each result, or for a vector of neighbouring ones; returns its loop."""
        sch = self.sch
        loops = sch.get_loops(block)
        reduced = [loops[at] for at in access.reduced]
        spatial = [loops[at] for at in access.spatial if at != access.written]
        last, lanes = loops[access.written], None
        if self._vectors(access):
            last, lanes = sch.split(last, [None, _LANES])
        spatial.append(last)
        sch.reorder(*spatial, *reduced, *filter(None, [lanes]))
        if lanes is not None:
            sch.vectorize(lanes)
        fused = sch.fuse(*spatial)
        extent = int(sch.get(fused).extent)
        divisor = extent if extent <= self._items else math.gcd(extent, self._items)
        few = divisor < _FEWEST_ITEMS < extent
        group, item = sch.split(fused, [None, self._items if few else divisor])
        sch.bind(group, "blockIdx.x")
        sch.bind(item, "threadIdx.x")
        return item

    def _vectors(self, access: Access) -> bool:
        """Returns whether work-items take vectors: neighbours are contiguous, and vectors keep the device busy.

        TVM 0.27 writes a selection by a condition of loops alone wrongly for vectors of OpenCL.
        """
        along = access.contiguous == access.written
        whole = access.extents[access.written] % _LANES == 0
        enough = math.prod(access.sizes) // _LANES >= self._busy
        return along and whole and enough and not access.reduced and not any(access.cuts)

    def _group(self, block: Any, access: Access, along: int) -> None:
        """A work-group for each result."""
        sch = self.sch
        loops = sch.get_loops(block)
        spatial = [loops[at] for at in access.spatial]
        others = [loops[at] for at in access.reduced if at != along]
        far, item = sch.split(loops[along], [None, self._items])
        sch.reorder(*spatial, *others, far, item)
        sch.bind(sch.fuse(*spatial), "blockIdx.x")
        sch.bind(item, "threadIdx.x")

    def _parts(self, access: Access, results: int) -> int:
        """The number of parts that are reduced apart; 0 if the results keep the device busy."""
        if not access.reduced or results >= self._busy:
            return 0
        extent = access.extents[access.longest]
        steps = math.prod(access.extents[at] for at in access.reduced)
        most = min(-(-self._busy // results), steps // _LEAST_OF_A_PART, extent)
        return next((one for one in range(most, 1, -1) if extent % one == 0), 0)
