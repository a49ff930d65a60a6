"""The result of a kernel run, in the documented, versioned form of `--json` and `result.json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.errors import counted
from autotune.reading import Count, Number, Seconds, typed

RESULT_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Drift:
    """A change of a device's speed during a run, shown by timing a kernel again.

    Attributes:
        serial: The device, if there may be several; empty otherwise.
        trials: Trials of the run before it was seen.
        ratio: The kernel's time relative to before; over 1 is slower.
        ci: 99 % interval of the ratio.
    """

    serial: str
    trials: Count
    ratio: Seconds
    ci: tuple[Number, Number]

    def __str__(self) -> str:
        where = f" on {self.serial}" if self.serial else ""
        return (
            f"after {self.trials} trials the same kernel took {self.ratio:.2f} times as long{where} "
            f"({self.ci[0]:.2f}-{self.ci[1]:.2f})"
        )


@dataclass(frozen=True)
class PooledSchedule:
    """One of the best few schedules of a kernel.

    Attributes:
        digest: Identity of the candidate; `default` for the untuned default.
        formulation: Its formulation.
        ms: Median milliseconds in the final benchmark, interleaved with the others of the pool.
        traits: Traits of its loops, see `ScheduleTraits.to_json`; None if they are not for a processor.
    """

    digest: str
    formulation: str
    ms: Seconds
    traits: dict[str, Any] | None


@dataclass(frozen=True)
class TaskResult:
    """One distinct kernel of the result. Times are in milliseconds.

    Attributes:
        name: Kernel name.
        operator: Operator, such as `conv2d`.
        role: `forward`, `data_grad`, `weight_grad` or `update`.
        spec: Shapes, in the form that `--op` takes.
        count: Times it runs in one training step.
        default_ms: Median time with the untuned default schedule; None if that failed.
        tuned_ms: Median time of the winner, which may be the default itself.
        speedup: Default over tuned, from interleaved blocks.
        ci: 95 % confidence interval of the speed-up.
        gflops: Rate of the winner, in GFLOP/s.
        trials: Candidates measured or failed.
        valid: Candidates with a valid time.
        failures: Failed candidates by status.
        max_rel_error: Largest relative error of the winner against the float64 reference.
        formulation: Formulation of the winner.
        digest: Identity of the winning candidate; `default` if no candidate was better, empty if nothing has a
            valid time.
        movement_ms: Part of `tuned_ms` that only moves data: padding, packing and copies. It is measured separately
            with the same program without its arithmetic. None if it was not measured.
        ties: The default or the second best, by digest, if the final benchmark cannot tell them from the winner.
        doubt: Why times of the final benchmark cannot be trusted; empty if they can. Ratios still hold.
        pool: The best few schedules with correct results, fastest first, including the untuned default.
        default_failure: Why the untuned default has no time; empty if it has one, or is not known.
    """

    name: str
    operator: str
    role: str
    spec: str
    count: Count
    default_ms: Seconds | None
    tuned_ms: Seconds | None
    speedup: Seconds | None
    ci: tuple[Number, Number] | None
    gflops: Number | None
    trials: Count
    valid: Count
    failures: dict[str, Count]
    max_rel_error: Number | None
    formulation: str
    digest: str
    movement_ms: Number | None = None
    ties: tuple[str, ...] = ()
    doubt: str = ""
    pool: tuple[PooledSchedule, ...] = ()
    default_failure: str = ""

    @property
    def saved_ms(self) -> float:
        """Milliseconds that tuning the kernel saves in a step; minus infinity where that is unknown."""
        if self.default_ms is None or self.tuned_ms is None:
            return -math.inf
        return self.count * (self.default_ms - self.tuned_ms)


@dataclass(frozen=True)
class RecordsUse:
    """The use of records of earlier runs in a run.

    Attributes:
        equal: Known kernels: their best schedules were measured again.
        similar: Kernels whose search began with schedules of kernels that differ only in size.
        unknown: Kernels without records of their own or of similar kernels.
        saved_trials: An estimate of trials saved. It is the number of trials that earlier runs took to get within 5
            % of a kernel's best, minus those that this run took to be as fast. For a similar kernel, it counts
            until the same gain over the untuned default. Kernels that did not get so far in this run count as 0.
    """

    equal: Count
    similar: Count
    unknown: Count
    saved_trials: int

    def __str__(self) -> str:
        return (
            f"records: {counted(self.equal, 'kernel')} known, {self.similar} begun with similar ones, "
            f"{self.unknown} new; about {counted(self.saved_trials, 'trial')} saved (estimate)"
        )


@dataclass(frozen=True)
class StepSpeedup:
    """The predicted speed-up of a step.

    Attributes:
        ratio: Time of the untuned step over that of the tuned one.
        ends: Its 95 % confidence interval; None if a kernel has none.
    """

    ratio: float
    ends: tuple[float, float] | None


@dataclass(frozen=True)
class Result:
    """The complete result of a kernel run.

    Attributes:
        target: Target name.
        device: Fingerprint of the device it was measured on.
        stand_in: Whether that device is only a stand-in for the target's.
        trials: Candidates measured or failed in total.
        wall_s: Seconds of tuning, including resumed parts.
        tasks: One entry for each distinct kernel.
        drifts: Changes of the device's speed during the run. The final benchmark times trials from before and after
            a change again, side by side.
        records: The use of records; None if none were requested.
    """

    target: str
    device: dict[str, Any]
    stand_in: bool
    trials: Count
    wall_s: Number
    tasks: tuple[TaskResult, ...]
    drifts: tuple[Drift, ...] = ()
    records: RecordsUse | None = None

    def step_ms(self, *, tuned: bool) -> float | None:
        """Predicts the kernel time of one step, in milliseconds: the sum of count x time.

        Returns None if a kernel has no time at all.
        """
        total = 0.0
        for task in self.tasks:
            time = task.tuned_ms if tuned else task.default_ms
            if time is None:
                return None
            total += task.count * time
        return total

    def step_speedup(self) -> StepSpeedup | None:
        """Predicts how much faster a tuned step is than an untuned one, from the kernels' speed-ups.

        A kernel's speed-up counts by its part of the tuned step. The step of one kernel has that kernel's speed-up
        and interval. The errors of several kernels are independent of each other.

        Returns None if a kernel has no time at all.
        """
        ratio = total = below = above = 0.0
        known = True
        for task in self.tasks:
            if not task.tuned_ms or not task.default_ms:
                return None
            weight = task.count * task.tuned_ms
            own = task.default_ms / task.tuned_ms if task.speedup is None else task.speedup
            ends = (own, own) if own == 1 else task.ci
            total += weight
            ratio += weight * own
            if ends is None:
                known = False
                continue
            below += (weight * (own - ends[0])) ** 2
            above += (weight * (ends[1] - own)) ** 2
        if not total:
            return None
        ends = ((ratio - math.sqrt(below)) / total, (ratio + math.sqrt(above)) / total)
        return StepSpeedup(ratio / total, ends if known else None)

    def geometric_mean_speedup(self, operators: Sequence[str]) -> float | None:
        """Returns the geometric mean of the speed-ups of these operators' tasks; None if there are none."""
        speedups = [t.speedup for t in self.tasks if t.operator in operators and t.speedup]
        if not speedups:
            return None
        return math.exp(sum(map(math.log, speedups)) / len(speedups))

    def untuned_text(self) -> str:
        """Says what the untuned default is, without which its ratios are misread."""
        if self.target.endswith("cpu"):
            return "untuned is TVM's default schedule, a plain loop nest on one thread"
        return "untuned is what the default rules of TVM's dlight make"

    def to_json(self) -> dict[str, Any]:
        """Returns the documented object; see `docs/reference/result-schema.md`."""
        return {
            "schema_version": RESULT_SCHEMA_VERSION,
            "target": self.target,
            "device": self.device,
            "stand_in": self.stand_in,
            "trials": self.trials,
            "wall_s": round(self.wall_s, 3),
            "step_ms": {
                "default": self.step_ms(tuned=False),
                "tuned": self.step_ms(tuned=True),
            },
            "drifts": [asdict(drift) for drift in self.drifts],
            "records": asdict(self.records) if self.records else None,
            "tasks": [asdict(task) for task in self.tasks],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Result:
        """Reads the output of `to_json`.

        Raises:
            Unreadable: The object is not a result of this schema version.
        """
        return typed(cls, content)
