"""Work that goes on on an emulated chip, and estimates of its steps."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from autotune.emulator.model.profile import Profile
from autotune.emulator.model.step_model import StepEstimate, Workload, estimate, in_sequence

_KEPT_ESTIMATES = 20_000
DONE_S = 1e-9
"""Seconds of work that count as none."""

Work = Workload | tuple[Workload, ...]
"""One step: a workload, or several of them, one after the other."""


@dataclass(eq=False)
class Load:
    """Work that is going on.

    Attributes:
        workload: One step of it.
        cpus: Cores that it may use.
        threads: Its threads; one a core where it is None.
        steps_left: Steps still to do; infinity for a load that somebody else ends.
        steps_done: Steps done, with the share of the one in progress.
        net_j: Energy above idle that it took.
        busy_s: Seconds that it has run.
        ended: Whether it is over.
    """

    workload: Work
    cpus: tuple[int, ...]
    threads: int | None = None
    steps_left: float = math.inf
    steps_done: float = 0.0
    net_j: float = 0.0
    busy_s: float = 0.0
    ended: bool = False

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes."""
        return max(part.memory_bytes for part in self.parts)

    @property
    def parts(self) -> tuple[Workload, ...]:
        """The workloads of a step."""
        return self.workload if isinstance(self.workload, tuple) else (self.workload,)

    def advance(self, step: StepEstimate, seconds: float, rivals: int) -> None:
        """Lets `seconds` pass, of which this load has one part in `rivals`; it may end by that."""
        done = min(self.steps_left, seconds / (step.time_s * rivals))
        self.steps_done += done
        self.steps_left -= done
        self.net_j += step.net_w / rivals * seconds
        self.busy_s += seconds
        self.ended = self.ended or self.steps_left * step.time_s * rivals <= DONE_S


class Estimates:
    """Estimates of steps on a device; steps repeat, so what was computed is kept."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._kept: dict[Hashable, StepEstimate] = {}

    def of(
        self, load: Load, cpus: tuple[int, ...], clocks_khz: tuple[int, ...], online: frozenset[int]
    ) -> StepEstimate:
        """A step of a load on some cores; see `estimate`.

        Raises:
            UsageError: No core or thread, or a core that is not there.
        """
        key = (load.workload, cpus, clocks_khz, load.threads, online)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _KEPT_ESTIMATES:
                self._kept.clear()
            every = [
                estimate(
                    self._profile,
                    part,
                    cpus,
                    clocks_khz,
                    threads=load.threads,
                    online=tuple(online),
                )
                for part in load.parts
            ]
            found = every[0] if len(every) == 1 else in_sequence(every)
            self._kept[key] = found
        return found
