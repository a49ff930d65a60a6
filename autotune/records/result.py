"""The result of a kernel run, in the documented, versioned form of `--json` and `result.json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.reading import Count, Number, Seconds, typed

RESULT_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Drift:
    """A change of a device's speed in the course of a run, as a kernel showed that was timed again.

    Attributes:
        serial: The device, where there may be several; empty otherwise.
        trials: Trials of the run before it was seen.
        ratio: The kernel's time over what it was before: over 1 is slower.
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
        traits: What its loops tell, see `ScheduleTraits.to_json`; None where they are not those of a processor.
    """

    digest: str
    formulation: str
    ms: Seconds
    traits: dict[str, Any] | None


@dataclass(frozen=True)
class TaskResult:
    """One distinct kernel of the result; times in milliseconds.

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
        digest: Identity of the winning candidate; `default` when no candidate was better, empty when
            nothing has a valid time.
        movement_ms: Of `tuned_ms`, what takes moving data alone: padding, packing and copies; measured apart, by
            the same program without its arithmetic. None where it was not measured.
        ties: Default or second best, by digest, where the final benchmark cannot tell them from the winner.
        doubt: Why times of the final benchmark are not to be trusted; empty where they are. Ratios still hold.
        pool: The best few schedules that gave the right result, fastest first, the untuned default among them.
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


@dataclass(frozen=True)
class RecordsUse:
    """What records of earlier runs were good for in a run.

    Attributes:
        equal: Kernels that were known: their best schedules were measured once more.
        similar: Kernels whose search began with schedules of others that differ in size only.
        unknown: Kernels of which, and of similar ones, the records told nothing.
        saved_trials: An estimate: the trials that earlier runs took until they were within 5 % of a kernel's best,
            less those that this run took until it was as fast; for a similar kernel, until it had gained as much
            over its untuned default. Kernels that this run did not bring so far count as 0.
    """

    equal: Count
    similar: Count
    unknown: Count
    saved_trials: int

    def __str__(self) -> str:
        return (
            f"records: {self.equal} kernels were known, {self.similar} began with similar ones, {self.unknown} are "
            f"new; about {self.saved_trials} trials saved, going by what earlier runs took to get as far"
        )


@dataclass(frozen=True)
class Result:
    """The whole result of a kernel run.

    Attributes:
        target: Target name.
        device: Fingerprint of the device it was measured on.
        stand_in: Whether that device only stands in for the target's.
        trials: Candidates measured or failed in all.
        wall_s: Seconds of tuning, resumed parts included.
        tasks: One entry a distinct kernel.
        drifts: Changes of the device's speed meanwhile. The final benchmark times trials from before and after one
            again, side by side.
        records: What records were good for; None where none were asked.
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
        """Predicted kernel time of one step, in milliseconds: the sum of count x time.

        None when a kernel has no time at all.
        """
        total = 0.0
        for task in self.tasks:
            time = task.tuned_ms if tuned else task.default_ms
            if time is None:
                return None
            total += task.count * time
        return total

    def geometric_mean_speedup(self, operators: Sequence[str]) -> float | None:
        """Geometric mean of the speed-ups of the named operators' tasks; None where there are none."""
        speedups = [t.speedup for t in self.tasks if t.operator in operators and t.speedup]
        if not speedups:
            return None
        return math.exp(sum(map(math.log, speedups)) / len(speedups))

    def to_json(self) -> dict[str, Any]:
        """The documented object; see `docs/result-schema.md`."""
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
        """Reads what `to_json` wrote.

        Raises:
            Unreadable: The object is not a result of this schema version.
        """
        return typed(cls, content)
