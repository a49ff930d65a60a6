"""The last part of a run: finalists are rebuilt, timed and described."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.compiler.programs import Candidate, movement_stages, only_stages
from autotune.compiler.run.final_benchmark import Finalist, Verdict, benchmark_finalists
from autotune.compiler.run.task_state import TaskState
from autotune.compiler.run.trials import CandidateExecutor
from autotune.compiler.runners import Runner
from autotune.compiler.target import TuneRequest
from autotune.measurement import Outcome

Traits = dict[str, dict[str, Any] | None]


def default_finalist(executor: CandidateExecutor, state: TaskState) -> Finalist | None:
    """Returns a task's untuned default, built if needed; None if it has no valid time."""
    outcome = state.default_outcome
    if outcome is None or not outcome.ok:
        return None
    library = state.default_library
    if library is None:  # It was measured in an earlier part of the run.
        (built,) = executor.build([state.default], untuned=True)
        if isinstance(built, Outcome):
            return None
        library = state.default_library = built
    return Finalist(state.default.digest, library, outcome.seconds)


class FinalRound:
    """Times the finalists of a run's tasks.

    Args:
        request: The run's request.
        runner: The device.
        executor: Builds and measures candidates.
    """

    def __init__(self, request: TuneRequest, runner: Runner, executor: CandidateExecutor) -> None:
        self._request = request
        self._runner = runner
        self._executor = executor

    def verdict(self, state: TaskState) -> Verdict:
        """Returns the verdict on a task's finalists, with the time that the winner takes to move data."""
        verdict = benchmark_finalists(
            self._runner,
            self._executor.data(state.task.kernel),
            default_finalist(self._executor, state),
            self._finalists(state),
            self._request.space.measure,
            self._request.seed,
        )
        return replace(verdict, movement_s=self._movement(state, verdict))

    def traits(self, states: list[TaskState], verdicts: dict[str, Verdict]) -> Traits:
        """Returns the traits of the pools' schedules, by digest; empty for GPU programs."""
        if self._request.target.family != "cpu":
            return {}
        defaults: list[Candidate] = []
        tuned: list[Candidate] = []
        for state in states:
            verdict = verdicts[state.task.kernel.name]
            for digest, _ in state.pool(verdict, self._request.space.measure.pool):
                candidate = state.candidate(digest)
                (defaults if candidate is state.default else tuned).append(candidate)
        return {
            **self._executor.traits(defaults, untuned=True),
            **self._executor.traits(tuned),
        }

    def _finalists(self, state: TaskState) -> list[Finalist]:
        """Returns a task's best candidates, rebuilt."""
        leaders = state.leaders(self._request.space.measure.finalists)
        built = self._executor.build([state.trials[digest].candidate for digest, _ in leaders])
        return [
            Finalist(digest, path, seconds, state.trials[digest].candidate.half)
            for (digest, seconds), path in zip(leaders, built, strict=True)
            if not isinstance(path, Outcome)
        ]

    def _movement(self, state: TaskState, verdict: Verdict) -> float | None:
        """Returns the seconds that the winner takes only to move data; None if they could not be measured."""
        if verdict.winner_s is None:
            return None
        untuned = verdict.winner == state.default.digest
        kernel, formulation, program = state.task.kernel, "direct", state.default.scheduled()
        if not untuned:
            won = state.trials[verdict.winner]
            formulation, program = won.searcher.formulation.name, won.candidate.scheduled()
        stages = movement_stages(kernel, formulation)
        if stages is None:
            return verdict.winner_s
        part = only_stages(program, stages)
        if part is None:
            return 0.0
        moving = Candidate.of(f"{verdict.winner}-movement", part)
        (library,) = self._executor.build([moving], untuned=untuned)
        if isinstance(library, Outcome):
            return None
        return self._executor.seconds(kernel, library)
