"""What is measured of a step, how, and what a run of it gave."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from autotune.measurement.statistics import median
from autotune.power import Joules

RunStatus = Literal["ok", "unstable", "throttled", "run_error"]


@dataclass(frozen=True)
class Workload:
    """What is measured.

    Attributes:
        command: Program and arguments on the device; `{threads}` stands for their number.
        step: What the line holds that the end of a step prints; a group named `ms` is how long it took.
        watch: Files to sample beside what conditions and energy need.
    """

    command: tuple[str, ...]
    step: re.Pattern[str]
    watch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Band:
    """Temperatures at which runs begin, in degrees Celsius."""

    low_c: float
    high_c: float


@dataclass(frozen=True)
class Protocol:
    """How a run is measured.

    Attributes:
        warm_up: First steps that do not count.
        least_steps: Steps that do, at least.
        least_s: Seconds of them, at least.
        limit_s: Longest run.
        interval_s: Between samples.
        idle_s: Length of each of the two idle windows, before and after a run.
        settle_s: What is left out before each of them: a gauge shows the mean of a time that has passed.
        band_k: How far above its temperature at the beginning a device may be when a run begins.
        cold_k: How far below it may be; else it is warmed by the workload.
        cooling_limit_s: Longest rest before a run.
        warming_limit_s: Longest such work; what begins colder all the same is marked.
        attempts: Runs of a setting before it is given up as unstable.
        returns: How often a run is begun anew after the device went away or restarted.
        return_s: How long it may be away.
    """

    warm_up: int = 2
    least_steps: int = 5
    least_s: float = 5.0
    limit_s: float = 900.0
    interval_s: float = 0.1
    idle_s: float = 3.0
    settle_s: float = 2.5
    band_k: float = 2.0
    cold_k: float = 8.0
    cooling_limit_s: float = 900.0
    warming_limit_s: float = 300.0
    attempts: int = 2
    returns: int = 2
    return_s: float = 300.0


@dataclass(frozen=True)
class StepRun:
    """One run of the workload.

    Attributes:
        status: `ok`; `throttled` where a clock was capped; `unstable` where another condition did not hold;
            `run_error` where the workload did not run.
        message: What was wrong; empty when `ok`.
        step_s: Seconds of each step that counts, or of as many as were told of apart.
        energy: Joules above idle of all of them; None without a meter, or where it says nothing.
        marks: What makes the energy doubtful, or the beginning unlike that of others.
        rails: Joules above idle of all of them by rail, of a meter that has several.
        celsius: Highest temperature; None without a sensor.
        memory_bytes: Peak memory; None where it was not told.
        khz: Mean clock of each cluster, by name.
        records: Raw records: idle before, the run, idle after; fewer where it was broken off.
        rejected: Earlier runs of the setting that do not count, with their records.
    """

    status: RunStatus
    message: str = ""
    step_s: tuple[float, ...] = ()
    energy: Joules | None = None
    marks: tuple[str, ...] = ()
    rails: dict[str, float] = field(default_factory=dict)
    celsius: float | None = None
    memory_bytes: int | None = None
    khz: dict[str, float] = field(default_factory=dict)
    records: tuple[str, ...] = ()
    rejected: tuple[StepRun, ...] = ()
    steps: int = 0

    @property
    def count(self) -> int:
        """Steps that count."""
        return self.steps or len(self.step_s)

    @property
    def time_s(self) -> float:
        """Median seconds of a step.

        Raises:
            ValueError: There is none.
        """
        if not self.step_s:
            raise ValueError("a run that failed has no time")
        return median(self.step_s)

    @property
    def energy_j(self) -> float | None:
        """Mean joules of a step."""
        return self.energy.joules / self.count if self.energy else None

    @property
    def deviation_j(self) -> float | None:
        """Standard uncertainty of a step's joules."""
        return self.energy.deviation / self.count if self.energy else None
