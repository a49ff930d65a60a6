"""The workload, the protocol of its measurement, and the result of a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from autotune.measurement.statistics import median
from autotune.power import Joules

RunStatus = Literal["ok", "unstable", "throttled", "run_error"]


@dataclass(frozen=True)
class Workload:
    """A workload to measure.

    Attributes:
        command: Program and arguments on the device; `{threads}` stands for the number of threads.
        step: A pattern for the line printed at the end of a step. A group named `ms` is the step's duration.
        watch: Files to sample in addition to those for conditions and energy.
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
        least_steps: Least number of steps that count.
        least_s: Least duration of these steps, in seconds.
        limit_s: Longest run.
        interval_s: Seconds between samples.
        idle_s: Length of each of the two idle windows, before and after a run.
        settle_s: Time to ignore before each idle window, because a gauge shows a mean of the past.
        band_k: How far above its initial temperature a device may be when a run begins.
        cold_k: How far below it may be; otherwise it is warmed by the workload.
        cooling_limit_s: Longest rest before a run.
        warming_limit_s: Longest warming. A run that still begins colder is marked.
        attempts: Runs of a setting before it is given up as unstable.
        returns: How often a run is restarted after the device went away or restarted.
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
        status: `ok`; `throttled` if a clock was capped; `unstable` if another condition did not hold; `run_error`
            if the workload did not run.
        message: The error; empty when `ok`.
        step_s: Seconds of each step that counts, or of each one that was reported separately.
        energy: Joules above idle of all of them; None without a meter, or if it gives none.
        marks: Reasons to doubt the energy, or a start that differs from other runs.
        rails: Joules above idle of all of them by rail, for a meter with several rails.
        celsius: Highest temperature; None without a sensor.
        memory_bytes: Peak memory; None if unknown.
        khz: Mean clock of each cluster, by name.
        records: Raw records: idle before, the run, idle after; fewer if it broke off.
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
        """Number of steps that count."""
        return self.steps or len(self.step_s)

    @property
    def time_s(self) -> float:
        """Median seconds of a step.

        Raises:
            ValueError: There are no steps.
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
