"""Work in progress on an emulated chip, and estimates of its steps."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from autotune.emulator.model.profile import Profile
from autotune.emulator.model.step_model import StepEstimate, Workload, estimate, in_sequence

_KEPT_ESTIMATES = 20_000
DONE_S = 1e-9
"""Seconds of work that count as zero."""

Work = Workload | tuple[Workload, ...]
"""One step: a workload, or several workloads one after the other."""


@dataclass(eq=False)
class Load:
    """Work in progress.

    Attributes:
        workload: One step of it.
        cpus: Cores that it may use.
        threads: Its threads; None for one on each core.
        steps_left: Remaining steps; infinity for a load that is ended from outside.
        steps_done: Finished steps, including the share of the step in progress.
        net_j: Its energy above idle.
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
        """Memory that it uses."""
        return max(part.memory_bytes for part in self.parts)

    @property
    def parts(self) -> tuple[Workload, ...]:
        """The workloads of a step."""
        return self.workload if isinstance(self.workload, tuple) else (self.workload,)

    def advance(self, step: StepEstimate, seconds: float, rivals: int) -> None:
        """Lets `seconds` pass. This load gets one part in `rivals` of them, and may end."""
        done = min(self.steps_left, seconds / (step.time_s * rivals))
        self.steps_done += done
        self.steps_left -= done
        self.net_j += step.net_w / rivals * seconds
        self.busy_s += seconds
        self.ended = self.ended or self.steps_left * step.time_s * rivals <= DONE_S


class Estimates:
    """Cached estimates of steps on a device, because steps repeat."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._kept: dict[Hashable, StepEstimate] = {}

    def of(
        self, load: Load, cpus: tuple[int, ...], clocks_khz: tuple[int, ...], online: frozenset[int]
    ) -> StepEstimate:
        """Returns the estimate of a load's step on some cores; see `estimate`.

        Raises:
            UsageError: There are no cores or threads, or a core does not exist.
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
