"""The state of a task in a run, and its entry in the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.compiler.programs import DEFAULT, Candidate
from autotune.compiler.run.budget import TaskSearches
from autotune.compiler.run.final_benchmark import Verdict, finalists
from autotune.compiler.search import FormulationSearch
from autotune.measurement import Outcome, median
from autotune.records import PooledSchedule, TaskResult
from autotune.workloads import Task


@dataclass(frozen=True)
class Trial:
    """A candidate that was tried.

    Attributes:
        candidate: The candidate.
        searcher: The search that proposed it.
        outcome: Its outcome.
        epoch: Number of drifts seen before it.
    """

    candidate: Candidate
    searcher: FormulationSearch
    outcome: Outcome
    epoch: int = 0


@dataclass
class TaskState:
    """The state of a task in the run.

    Attributes:
        task: The kernel with its count.
        searchers: Its searches, with their state for the budget.
        default: The untuned default.
        default_outcome: Its outcome; None before it was measured.
        default_library: Its library, if this process has built it.
        trials: All trials, by the candidate's digest.
    """

    task: Task
    searchers: TaskSearches
    default: Candidate
    default_outcome: Outcome | None = None
    default_library: Path | None = None
    trials: dict[str, Trial] = field(default_factory=dict)

    def note_default(self, outcome: Outcome) -> None:
        """Records the outcome of the untuned default."""
        self.default_outcome = outcome
        self.searchers.default_s = outcome.seconds

    def leaders(self, count: int) -> list[tuple[str, float]]:
        """Returns the best candidates so far, as (digest, seconds).

        Times before and after a drift are not comparable. So the best candidate of each side of a drift is added,
        at most `count` of them.
        """
        times = [(digest, trial.outcome.seconds) for digest, trial in self.trials.items()]
        found = finalists(times, count)
        sides = [
            finalists([(d, s) for d, s in times if self.trials[d].epoch == epoch], 1)
            for epoch in sorted({trial.epoch for trial in self.trials.values()}, reverse=True)
        ]
        left = [best for side in sides for best in side if best not in found]
        return found + left[:count]

    def pool(self, verdict: Verdict, count: int) -> list[tuple[str, float]]:
        """Returns the task's best schedules as (digest, seconds), fastest first.

        They are those of the final benchmark with a correct result, then the best of the search, up to `count`.
        Times from the search are scaled by the ratio of the two times of the fastest finalist.
        """
        times = {d: median(verdict.samples[d]) for d in verdict.right if d in verdict.samples}
        first = min((d for d in times if d in self.trials), key=lambda d: times[d], default=None)
        scale = times[first] / self.trials[first].outcome.seconds if first else 1.0
        for digest, seconds in self.leaders(count):
            if digest not in verdict.samples and len(times) < count:
                times[digest] = seconds * scale
        return sorted(times.items(), key=lambda one: one[1])

    def candidate(self, digest: str) -> Candidate:
        """Returns a candidate of the task by its digest."""
        return self.default if digest == self.default.digest else self.trials[digest].candidate

    def result(
        self, verdict: Verdict, traits: Mapping[str, dict[str, Any] | None], count: int
    ) -> TaskResult:
        """Returns the task's entry in the result.

        Args:
            verdict: Verdict of the final benchmark.
            traits: Traits of the pool's schedules, by digest.
            count: Number of schedules in its pool.
        """
        kernel = self.task.kernel
        outcomes = [trial.outcome for trial in self.trials.values()]
        failures: dict[str, int] = {}
        for outcome in outcomes:
            if not outcome.ok:
                failures[outcome.status] = failures.get(outcome.status, 0) + 1
        won = self.trials.get(verdict.winner)
        kept = verdict.winner == self.default.digest
        interval, seconds = verdict.speedup, verdict.winner_s
        return TaskResult(
            name=kernel.name,
            operator=kernel.operator.name,
            role=kernel.role,
            spec=kernel.spec,
            count=self.task.count,
            default_ms=_ms(verdict.default_s),
            tuned_ms=_ms(seconds),
            speedup=interval.estimate if interval else None,
            ci=(interval.low, interval.high) if interval else None,
            gflops=kernel.flops / seconds / 1e9 if seconds else None,
            trials=sum(outcome.status != "killed" for outcome in outcomes),
            valid=sum(outcome.ok for outcome in outcomes),
            failures=failures,
            max_rel_error=verdict.max_rel_error,
            formulation=self._formulation(verdict.winner) if won or kept else "",
            digest=DEFAULT if kept else verdict.winner,
            movement_ms=_ms(verdict.movement_s),
            ties=tuple(DEFAULT if d == self.default.digest else d for d in verdict.ties),
            doubt=verdict.doubt,
            pool=tuple(
                PooledSchedule(
                    digest=DEFAULT if digest == self.default.digest else digest,
                    formulation=self._formulation(digest),
                    ms=1e3 * best_s,
                    traits=traits.get(digest),
                )
                for digest, best_s in self.pool(verdict, count)
            ),
            default_failure=_default_failure(self.default_outcome, verdict),
        )

    def _formulation(self, digest: str) -> str:
        won = self.trials.get(digest)
        return won.searcher.formulation.name if won else "direct"


def _default_failure(outcome: Outcome | None, verdict: Verdict) -> str:
    """Returns why the untuned default has no time; empty if it has one."""
    if verdict.default_s is not None:
        return ""
    if outcome is None or outcome.ok:
        return verdict.message or "it failed in the final benchmark"
    what = outcome.status.replace("_", " ")
    first = outcome.message.strip().partition("\n")[0]
    return f"{what}: {first}" if first else what


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds
