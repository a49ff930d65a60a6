"""Default schedules of kernels that memory limits: element-wise work and reductions, without a search.

Such a kernel is fast if it reads memory in order, in vectors, on all cores. So one schedule can be given without a
trial. On a CPU:

- a stage that is cheap, or read once, is computed where it is read;
- the loop along which most of the memory is contiguous becomes the vectors;
- a reduction along that loop has a partial result for each lane of a vector; they are combined at the end;
- if there are too few results for the threads, each thread reduces a part;
- a stage with the loops of the stage before is computed together with it, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.compiler.rules.streaming_access import Access, access_of, is_cheap
from autotune.compiler.rules.tile_rules import is_result
from autotune.compiler.target import Streaming

_JOBS_PER_THREAD = 4
_FEWEST_LANES = 4
_SHORT = 8
"""Extent below which a loop is not worth vectors if there is another."""
_FEWEST_SHARED = 8192
"""Fewest steps of a stage that threads share: starting them takes microseconds."""
_BLOCK = 16
"""Side of the blocks in which two axes are exchanged."""
_FEWEST_OF_A_PART = 256
"""Fewest elements of a part, when several threads share a reduction."""
_MOST_UNROLLED = 16
"""Most steps of a window that are straight-line code."""


def streamed(sch: Any, rule: Streaming, threads: int) -> Any:
    """Returns the schedule of a program for a CPU.

    Args:
        sch: TVM `Schedule` without instructions. Its function `main` has no contraction.
        rule: What the schedule may use.
        threads: Number of the processor's threads.
    """
    return stream_stages(sch, names_of_blocks(sch), rule.lanes, threads if rule.threads else 1)


def stream_stages(sch: Any, names: Sequence[str], lanes: int, threads: int) -> Any:
    """Schedules some stages of a program, and returns the schedule.

    Args:
        sch: TVM `Schedule` that has no instructions for them.
        names: Names of their blocks, in the order in which they run. They contain no contraction.
        lanes: Most neighbouring elements that are computed at once, as vectors.
        threads: Number of threads that share the work.
    """
    from tvm.s_tir import ScheduleError

    left_out = inlined(sch, names)
    done = _Stages(sch, lanes, threads)
    for name in names:
        for together in (True, False) if name not in left_out else ():
            tried = done.copy()
            try:
                tried.stage(tried.sch.get_sblock(name), together=together)
            except ScheduleError:
                continue  # A primitive refuses the shape. If both do, the loops stay plain.
            done = tried
            break
    return done.finished()


def names_of_blocks(sch: Any) -> list[str]:
    """Returns the names of a program's blocks, in the order in which they run."""
    return [str(sch.get(one).name_hint) for one in sch.get_child_blocks(sch.get_sblock("root"))]


def inlined(sch: Any, names: Sequence[str]) -> set[str]:
    """Computes stages where they are read, if that does not repeat expensive work; returns their names."""
    found = set()
    for name in names:
        block = sch.get_sblock(name)
        access = access_of(sch, block)
        readers = sch.get_consumers(block)
        if is_result(sch, block) or access.reduced or not readers:
            continue
        repeated = sum(access_of(sch, one).steps for one in readers) > access.steps
        if not repeated or is_cheap(sch.get(block)):
            sch.compute_inline(block)
            found.add(name)
    return found


@dataclass(frozen=True)
class Row:
    """A loop of a scheduled stage, in which a later stage can be computed.

    Attributes:
        loop: The loop.
        stage: Name of the stage.
        sizes: Extents of the loops of the stage's result.
        depth: Number of loops up to it.
    """

    loop: Any
    stage: str
    sizes: tuple[int, ...]
    depth: int = 0

    def fits(self, sch: Any, block: Any, access: Access) -> bool:
        """Returns whether a stage can be computed in it: it has the same loops, and reads the last stage."""
        producers = [str(sch.get(one).name_hint) for one in sch.get_producers(block)]
        same = self.sizes == access.sizes and access.contiguous not in access.reduced
        return same and self.stage in producers


class _Stages:
    """A schedule whose stages are scheduled one after the other."""

    def __init__(self, sch: Any, lanes: int, threads: int) -> None:
        self.sch = sch
        self._most_lanes = lanes
        self._threads = threads
        self._row: Row | None = None
        self._reductions: list[tuple[Any, Any, bool]] = []
        """Blocks of reductions, the outermost loop of each, and whether they are in vectors."""

    def copy(self) -> _Stages:
        """Returns the same, to try something with."""
        other = _Stages(self.sch.copy(), self._most_lanes, self._threads)
        other._row = self._row
        other._reductions = list(self._reductions)
        return other

    def finished(self) -> Any:
        """Returns the schedule. Results of reductions get their first values apart from the steps."""
        for block, loop, vectors in self._reductions:
            init = self.sch.decompose_reduction(block, loop)
            if vectors:
                self.sch.vectorize(self.sch.get_loops(init)[-1])
        return self.sch

    def stage(self, block: Any, *, together: bool) -> None:
        """Schedules a stage.

        Args:
            block: The stage.
            together: Compute it in a row of the last stage, if the results have the same shape.

        Raises:
            ScheduleError: A primitive of TVM refuses it. The schedule is then of no use.
        """
        access = access_of(self.sch, block)
        along = self._along_of(block, access)
        if together and self._row and self._row.fits(self.sch, block, access):
            self.sch.reverse_compute_at(block, self._row.loop, preserve_unit_loops=True)
            access = access_of(self.sch, block)
            self._vectors(block, access, access.written, threads=1, inside=self._row.depth)
            return
        self._row = None
        lanes = self._lanes(access, along)
        results = math.prod(access.sizes) // (1 if along in access.reduced else lanes)
        if parts := self._parts(access, results):
            self._apart(block, access, parts)
        elif along in access.reduced:
            self._along(block, access, along)
        elif along == access.contiguous != access.written and not access.reduced:
            self._exchanged(block, access, along)
        else:
            row = self._vectors(block, access, along, self._threads)
            name = str(self.sch.get(block).name_hint)
            self._row = Row(row, name, access.sizes, self._depth(row, block))

    def _along_of(self, block: Any, access: Access) -> int:
        """Returns the loop that becomes vectors: the contiguous one, unless it is short and the work expensive."""
        along = access.contiguous
        if is_cheap(self.sch.get(block)):
            return along
        long = max(access.spatial, key=lambda at: access.extents[at], default=along)
        if access.extents[along] < _SHORT <= self._lanes(access, long):
            return long
        return along

    def _vectors(
        self, block: Any, access: Access, along: int, threads: int, inside: int = 0
    ) -> Any:
        """Vectors along one loop, around which all others go; a reduction steps through them.

        Args:
            block: The stage.
            access: Its loops.
            along: The loop that becomes vectors.
            threads: The threads that share the outer loops.
            inside: Number of outer loops that belong to an earlier stage too.

        Returns:
            The innermost loop around the vectors and the reduction.
        """
        sch = self.sch
        loops = sch.get_loops(block)
        width = self._lanes(access, along)
        outer = [loops[at] for at in access.spatial if at != along and at >= inside]
        inner = [loops[at] for at in access.reduced]
        column, lanes = sch.split(loops[along], [None, width])
        sch.reorder(*outer, column, *inner, lanes)
        row = self._share(access, [*outer, column], threads)
        if width >= _FEWEST_LANES:
            sch.vectorize(lanes)
        if inner:
            self._reductions.append((block, inner[0], width >= _FEWEST_LANES))
            window = math.prod(access.extents[at] for at in access.reduced)
            for one in inner if window <= _MOST_UNROLLED else []:
                sch.unroll(one)
        return row

    def _exchanged(self, block: Any, access: Access, along: int) -> None:
        """Element-wise work that reads along another loop than it writes: in blocks of both."""
        sch = self.sch
        loops = sch.get_loops(block)
        outer = [loops[at] for at in access.spatial if at not in (along, access.written)]
        far, near = sch.split(loops[along], [None, _divisor(access.extents[along], _BLOCK)])
        width = _divisor(access.extents[access.written], _BLOCK)
        column, lanes = sch.split(loops[access.written], [None, width])
        sch.reorder(*outer, far, column, near, lanes)
        self._share(access, [*outer, far, column], self._threads)
        if width >= _FEWEST_LANES:
            sch.vectorize(lanes)

    def _apart(self, block: Any, access: Access, parts: int) -> None:
        """Each thread reduces a part; what they found is then combined."""
        part, _ = self.sch.split(self.sch.get_loops(block)[access.longest], [parts, None])
        self.stage(self.sch.rfactor(part, 0), together=False)
        self._row = None
        combined = access_of(self.sch, block)
        self._vectors(block, combined, combined.written, threads=1)

    def _along(self, block: Any, access: Access, along: int) -> None:
        """A reduction along what is contiguous: a partial result for each lane of a vector."""
        sch = self.sch
        loops = sch.get_loops(block)
        outer = [loops[at] for at in access.spatial]
        width = self._lanes(access, along)
        if access.extents[along] < 2 * width or width < _FEWEST_LANES:
            inner = [*(loops[at] for at in access.reduced if at != along), loops[along]]
            sch.reorder(*outer, *inner)
            self._share(access, outer, self._threads)
            self._reductions.append((block, inner[0], False))
            return
        _, lane = sch.split(loops[along], [None, width])
        partial = sch.rfactor(lane, len(access.spatial))
        row = self._share(access, sch.get_loops(block)[: len(outer)], self._threads)
        sch.compute_at(partial, row, preserve_unit_loops=True)
        inside = access_of(sch, partial)
        loops = sch.get_loops(partial)
        rest = [loops[at] for at in inside.reduced]
        sch.reorder(*rest, loops[inside.written])
        sch.vectorize(loops[inside.written])
        self._reductions.append((partial, rest[0], True))
        self._reductions.append((block, sch.get_loops(block)[-1], False))

    def _parts(self, access: Access, results: int) -> int:
        """The number of parts that threads reduce apart; 0 if the results are enough for them."""
        if not access.reduced or results >= self._threads:
            return 0
        extent = access.extents[access.longest]
        most = min(self._threads * _JOBS_PER_THREAD, access.steps // _FEWEST_OF_A_PART, extent)
        parts = _divisor(extent, most)
        return parts if parts > 1 else 0

    def _share(self, access: Access, loops: Sequence[Any], threads: int) -> Any:
        """Shares loops among threads, outermost first and as many as it takes; returns the innermost loop."""
        if threads == 1 or access.steps < _FEWEST_SHARED:
            return loops[-1]
        taken, extent = 0, 1
        while taken < len(loops) and extent < self._threads * _JOBS_PER_THREAD:
            extent *= int(self.sch.get(loops[taken]).extent)
            taken += 1
        fused = self.sch.fuse(*loops[:taken]) if taken > 1 else loops[0]
        self.sch.parallel(fused)
        return loops[-1] if taken < len(loops) else fused

    def _depth(self, loop: Any, block: Any) -> int:
        names = [self.sch.get(one).loop_var for one in self.sch.get_loops(block)]
        wanted = self.sch.get(loop).loop_var
        return next(at for at, one in enumerate(names, start=1) if one.same_as(wanted))

    def _lanes(self, access: Access, along: int) -> int:
        return _divisor(math.gcd(access.extents[along], access.cuts[along]), self._most_lanes)


def _divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent that is at most this: a power of two if one is wide enough for a vector."""
    power = math.gcd(extent, 1 << max(most, 1).bit_length() - 1)
    if power >= _FEWEST_LANES:
        return power
    return max(one for one in range(1, max(most, 1) + 1) if extent % one == 0)
