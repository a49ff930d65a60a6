"""The search of a run: it prepares a round of candidates while the device measures the previous round."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from autotune.compiler.programs import Candidate
from autotune.compiler.run.budget import Allocation, next_allocation
from autotune.compiler.run.drift import DriftWatch
from autotune.compiler.run.finalists import default_finalist
from autotune.compiler.run.progress import Progress
from autotune.compiler.run.resume import outcome_fields
from autotune.compiler.run.task_state import TaskState, Trial
from autotune.compiler.run.trials import Building, CandidateExecutor
from autotune.compiler.run.tuning_database import TuningDatabase
from autotune.compiler.runners import Runner
from autotune.compiler.search import FormulationSearch
from autotune.compiler.target import TuneRequest
from autotune.measurement import Outcome
from autotune.records import Run, RunFolder

LOGGER = logging.getLogger("autotune.run")
_REFERENCE_S = 1e-3


@dataclass(frozen=True)
class Round:
    """Candidates of one search that are built and measured together, with the outcomes so far."""

    state: TaskState
    searcher: FormulationSearch
    candidates: list[Candidate]
    outcomes: list[tuple[Candidate, Outcome]] = field(default_factory=list)

    def learn(self) -> None:
        """Reports the outcomes to the search."""
        self.searcher.observe(self.outcomes)


class TrialLoop:
    """Spends the trials of a run.

    Args:
        request: The run's request.
        folder: The run's folder.
        runner: The device.
        progress: Receives milestones.
        interrupted: Called between trials; True ends the search early.
        states: The run's tasks.
        database: TVM's own files.
        executor: Builds and measures candidates.
        done: Number of trials in earlier parts of the run.
    """

    def __init__(
        self,
        request: TuneRequest,
        folder: RunFolder,
        runner: Runner,
        progress: Progress,
        interrupted: Callable[[], bool],
        states: list[TaskState],
        database: TuningDatabase,
        executor: CandidateExecutor,
        done: int,
    ) -> None:
        self._request, self._folder, self._runner = request, folder, runner
        self._progress, self._interrupted = progress, interrupted
        self._states, self._database, self._executor = states, database, executor
        self._drift: DriftWatch | None = None
        self.done = done
        self.killed = 0

    @property
    def drift(self) -> DriftWatch | None:
        """The watch on the reference kernel; None if no kernel has a valid time."""
        return self._drift

    def run(self, earlier: Run | None) -> None:
        """Spends the trials.

        While the workers build a round, the search learns from the previous one, and the next one is chosen and
        sampled. If the device is this host's processor, nothing is built while it measures. If it is another
        device, the next round is built meanwhile.
        """
        self._progress.phase("search", self._request.trials)
        self._progress.step(self.done, "")
        self._drift = self._watch_drift(earlier)
        self._look_for_drift()
        previous, current = None, self._propose()
        building = self._executor.start(current.candidates) if current is not None else None
        while current is not None and building is not None:
            if previous is not None:
                previous.learn()
            following, ahead = self._propose(len(current.candidates)), None
            if following is not None and self._runner.apart:
                ahead = self._executor.start(following.candidates)
            self._measure(current, building)
            self._look_for_drift()
            if following is not None and ahead is None:
                ahead = self._executor.start(following.candidates)
            previous, current, building = current, following, ahead
        if self.done < self._request.trials and not self._interrupted():
            self._progress.notice(self._exhausted())

    def _watch_drift(self, earlier: Run | None) -> DriftWatch | None:
        """Takes as the reference a default with little data that takes long enough to stand out from noise."""
        timed = [e for e in self._states if e.default_outcome is not None and e.default_outcome.ok]
        if not timed or self._interrupted():
            return None
        state = min(
            timed, key=lambda e: (e.searchers.default_s < _REFERENCE_S, e.task.kernel.bytes)
        )
        reference = default_finalist(self._executor, state)
        if reference is None:
            return None
        kernel, library = state.task.kernel, reference.library
        watch = DriftWatch(
            lambda: self._executor.reference(kernel, library),
            self._request.seed,
            kernel=kernel.name,
        )
        if earlier is not None:
            watch.restore(earlier.events)
        return watch

    def _look_for_drift(self) -> None:
        if self._drift is None or self._interrupted():
            return
        for reference in self._drift.look(self.done):
            self._folder.event(
                "reference", task=self._drift.kernel, **outcome_fields(reference.outcome)
            )
            if reference.drift is not None:
                self._folder.event("drift", drift=asdict(reference.drift))
                self._progress.notice(f"drift: {reference.drift}")

    def _exhausted(self) -> str:
        done, asked = self.done, self._request.trials
        searchers = [one for state in self._states for one in state.searchers.searchers]
        why = next((one.state.failure for one in searchers if one.state.failure), "")
        return f"every search space is exhausted after {done} of {asked} trials" + (
            f": {why}" if why else ""
        )

    def _propose(self, on_their_way: int = 0) -> Round | None:
        """Returns the next round; None if the budget is spent, every search is exhausted, or at an interrupt."""
        request = self._request
        tasks = [state.searchers for state in self._states]
        while not self._interrupted():
            left = request.trials - self.done - on_their_way
            allocation = next_allocation(tasks, left, request.space.search.trials_per_round)
            if allocation is None:
                return None
            state = self._states[allocation.task]
            if candidates := self._sample(state, allocation):
                return Round(state, allocation.searcher, candidates)
        return None

    def _sample(self, state: TaskState, allocation: Allocation) -> list[Candidate]:
        began = time.monotonic()
        searcher = allocation.searcher
        candidates = searcher.propose(allocation.trials)
        accepted, rejected = searcher.samples()
        self._folder.event(
            "round",
            task=state.task.kernel.name,
            formulation=searcher.formulation.name,
            asked=allocation.trials,
            proposed=len(candidates),
            accepted=accepted,
            rejected=rejected,
            search_s=round(time.monotonic() - began, 3),
            exhausted=searcher.state.exhausted,
            failure=searcher.state.failure,
        )
        LOGGER.info(
            "%s: %d proposed, %d samples accepted, rejected %s",
            searcher.name, len(candidates), accepted, rejected or "none",
        )  # fmt: skip
        return candidates

    def _measure(self, current: Round, building: Building) -> None:
        def done(candidate: Candidate, outcome: Outcome) -> None:
            current.outcomes.append((candidate, outcome))
            self._record(current.state, current.searcher, candidate, outcome)

        self._executor.trial(
            current.state.task.kernel,
            building,
            current.state.searchers.best_s,
            done,
            self._interrupted,
        )

    def _record(
        self, state: TaskState, searcher: FormulationSearch, candidate: Candidate, outcome: Outcome
    ) -> None:
        self._folder.event(
            "trial",
            task=state.task.kernel.name,
            formulation=searcher.formulation.name,
            digest=candidate.digest,
            **device_fields(self._runner),
            **outcome_fields(outcome),
            trace=candidate.trace,
        )
        epoch = len(self._drift.drifts) if self._drift else 0
        state.trials[candidate.digest] = Trial(candidate, searcher, outcome, epoch)
        self.done += 1
        self.killed += outcome.status == "killed"
        if outcome.ok:
            self._database.store(searcher, candidate, outcome)
        best = state.searchers.best_s
        shown = f"best {1e3 * min(best, outcome.seconds):.3g} ms" if math.isfinite(best) else ""
        self._progress.step(self.done, f"{searcher.name} {outcome.status} {shown}".strip())


def device_fields(runner: Runner) -> dict[str, Any]:
    """Returns an event's fields about the device."""
    return {"device": runner.device.name, "stand_in": runner.device.stand_in}
