"""A kernel run from request to result: untuned defaults, search, final benchmark."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import Any

from autotune.compiler.programs import DEFAULT, Candidate, plain_module
from autotune.compiler.run.experience import Experiences
from autotune.compiler.run.final_benchmark import Verdict
from autotune.compiler.run.finalists import FinalRound, Traits
from autotune.compiler.run.known import Known
from autotune.compiler.run.progress import Progress
from autotune.compiler.run.resume import outcome_fields, restore
from autotune.compiler.run.searchers import Searchers
from autotune.compiler.run.task_state import TaskState
from autotune.compiler.run.trial_loop import TrialLoop, device_fields
from autotune.compiler.run.trials import BuildTargets, CandidateExecutor
from autotune.compiler.run.tuning_database import TuningDatabase
from autotune.compiler.run.warm_start import WarmStart
from autotune.compiler.runners import Builder, ReferenceData, Runner, target_text
from autotune.compiler.target import TuneRequest, cores, tvm_target
from autotune.errors import NothingMeasuredError
from autotune.measurement import Outcome
from autotune.records import Result, Run, RunFolder
from autotune.scratch import Scratch
from autotune.waits import waiting
from autotune.workloads import OwnKernel, Task

Interrupted = Callable[[], bool]


class KernelRun:
    """Tunes the kernels of one request, and records everything in a run folder.

    Args:
        request: The request.
        folder: The run folder, open for writing.
        runner: The device; started and stopped here.
        progress: Receives milestones.
        interrupted: Called between trials; True ends the search early.
        earlier: The same run read back, to be continued; None for a new run.
        known: Schedules of its kernels from other runs, which are tried first.
        experiences: Knowledge from records; None if no records are used.
    """

    def __init__(
        self,
        request: TuneRequest,
        folder: RunFolder,
        runner: Runner,
        progress: Progress,
        *,
        interrupted: Interrupted = lambda: False,
        earlier: Run | None = None,
        known: Known = MappingProxyType({}),
        experiences: Experiences | None = None,
    ) -> None:
        self._request = request
        self._known = known
        self._experiences = experiences
        self._folder = folder
        self._runner = runner
        self._progress = progress
        self._interrupted = interrupted
        self._earlier = earlier
        self._cores = cores()
        self._states: list[TaskState] = []
        self._database = TuningDatabase(folder)
        self._warm: WarmStart | None = None

    def run(self) -> Result | None:
        """Carries out the request; returns None if it was interrupted before the result.

        Raises:
            RecordError: The run folder could not be written; what was recorded is intact.
            NothingMeasuredError: No kernel has a valid time.
        """
        began = time.monotonic()
        self._folder.event("started", trials=self._request.trials)
        with self._executor() as (executor, target):
            with waiting("the kernels' formulations"):
                searchers = Searchers(self._request, self._known, target, self._cores)
                self._states = [
                    TaskState(task, searchers.of_task(i, task), _default_candidate(task))
                    for i, task in enumerate(self._request.tasks)
                ]
            done, earlier_wall = self._take_up()
            self._measure_defaults(executor)
            self._begin_with_records(searchers)
            loop = TrialLoop(
                self._request, self._folder, self._runner, self._progress, self._interrupted,
                self._states, self._database, executor, done,
            )  # fmt: skip
            loop.run(self._earlier)
            if self._interrupted():
                return None
            self._folder.event("searched", trials=loop.done)
            final = FinalRound(self._request, self._runner, executor)
            verdicts = self._benchmark(final)
            if self._interrupted() or verdicts is None:
                return None
            traits = final.traits(self._states, verdicts)
        return self._conclude(loop, verdicts, traits, earlier_wall + time.monotonic() - began)

    @contextmanager
    def _executor(self) -> Iterator[tuple[CandidateExecutor, Any]]:
        """Starts the workers, imports TVM meanwhile, and yields the executor of candidates and TVM's target."""
        request, measure = self._request, self._request.space.measure
        scratch = Scratch("run")
        builder = Builder(
            workers=self._cores,
            timeout_s=measure.build_timeout_s,
            temporary=scratch.path,
            programs=self._runner.programs,
            notify=self._tell_kill,
        )
        self._runner.notify = self._tell_kill
        try:
            with waiting("TVM to be loaded"):
                builder.start()
                self._runner.start()
                limits = request.space.limits
                target = tvm_target(request.target, limits, request.space.compile)
            targets = BuildTargets(
                target_text(target), target_text(tvm_target(request.target, limits)), limits
            )
            needed = not self._runner.models
            data = ReferenceData(scratch.path / "data", request.seed, needed=needed)
            libraries = scratch.path / "libraries"
            with closing(
                CandidateExecutor(builder, self._runner, data, measure, targets, libraries)
            ) as executor:
                yield executor, target
        finally:
            builder.stop()
            self._runner.stop()
            scratch.close()

    def _tell_kill(self, text: str) -> None:
        """Records that a worker was killed from outside. Called in the thread that owns the worker."""
        self._folder.event("worker_killed", message=text)
        self._progress.notice(text)

    def _take_up(self) -> tuple[int, float]:
        """Restores the trials of earlier parts of the run; returns their number, and the seconds that they took."""
        if self._earlier is None:
            return 0, 0.0
        replayed, wall_s = restore(self._states, self._earlier)
        self._database.rewrite(replayed)
        return sum(len(searcher.candidates) for searcher in replayed), wall_s

    def _measure_defaults(self, executor: CandidateExecutor) -> None:
        untimed = [state for state in self._states if state.default_outcome is None]
        self._progress.phase("untuned defaults", len(untimed))
        libraries = executor.build([state.default for state in untimed], untuned=True)
        for done, (state, built) in enumerate(zip(untimed, libraries, strict=True), start=1):
            if self._interrupted():
                return
            if isinstance(built, Outcome):
                outcome = built
            else:
                outcome = executor.run(state.task.kernel, built, math.inf)
                state.default_library = built
            self._folder.event(
                DEFAULT,
                task=state.task.kernel.name,
                **device_fields(self._runner),
                **outcome_fields(outcome),
            )
            state.note_default(outcome)
            self._progress.step(done, state.task.kernel.name)

    def _begin_with_records(self, searchers: Searchers) -> None:
        """Seeds the searches with the knowledge from records, if the run has any."""
        if self._experiences is None:
            return
        self._warm = WarmStart(self._experiences, searchers.separate)
        self._progress.phase("records", self._warm.steps(self._states))
        self._warm.begin(self._states, self._progress.step, self._interrupted)
        for rule, schedules in self._warm.taught.items():
            self._folder.event("taught", rule=rule, schedules=schedules)
            self._progress.notice(
                f"records: the cost model of {rule} has learnt from {schedules} schedules of other kernels"
            )

    def _benchmark(self, final: FinalRound) -> dict[str, Verdict] | None:
        """Times the finalists of every task; returns None at an interrupt."""
        self._progress.phase("final benchmark", len(self._states))
        verdicts: dict[str, Verdict] = {}
        for done, state in enumerate(self._states, start=1):
            if self._interrupted():
                return None
            name = state.task.kernel.name
            verdict = verdicts[name] = final.verdict(state)
            self._folder.event(
                "final",
                task=name,
                **device_fields(self._runner),
                winner=verdict.winner,
                default=state.default.digest,
                samples={digest: list(row) for digest, row in verdict.samples.items()},
                movement_s=verdict.movement_s,
                message=verdict.message,
                ties=list(verdict.ties),
                doubt=verdict.doubt,
                rejected=list(verdict.rejected),
            )
            self._progress.step(done, name)
        return verdicts

    def _conclude(
        self, loop: TrialLoop, verdicts: dict[str, Verdict], traits: Traits, wall_s: float
    ) -> Result:
        count = self._request.space.measure.pool
        results = tuple(e.result(verdicts[e.task.kernel.name], traits, count) for e in self._states)
        device = self._runner.device
        result = Result(
            self._request.target.name,
            device.to_json(),
            device.stand_in,
            loop.done - loop.killed,
            wall_s,
            results,
            tuple(loop.drift.drifts) if loop.drift else (),
            self._warm.use(self._states) if self._warm else None,
        )
        self._folder.result(result.to_json())
        if all(task.tuned_ms is None for task in results):
            if loop.killed:
                raise NothingMeasuredError(
                    f"no kernel of this run has a valid time: the processes of {loop.killed} candidates were "
                    "killed from outside",
                    hint=f"find out what kills them, then continue with --resume {self._folder.path}",
                )
            for state in self._states:
                _check_own(state)
            first = next((v.message for v in verdicts.values() if v.message), "")
            raise NothingMeasuredError(
                f"no kernel of this run has a valid time: {first}",
                hint=f"see the failures in {self._folder.path / 'events.jsonl'}",
            )
        return result


def _check_own(state: TaskState) -> None:
    """Raises NothingMeasuredError if the user's own program and its reference compute different results."""
    operator, default = state.task.kernel.operator, state.default_outcome
    if isinstance(operator, OwnKernel) and default and default.status == "wrong_result":
        name = operator.function
        raise NothingMeasuredError(
            f"the results of {name} differ from those of {name}_reference: {default.message}",
            hint="correct the one that is wrong",
        )


def _default_candidate(task: Task) -> Candidate:
    digest = hashlib.sha256(f"{DEFAULT}:{task.kernel.name}".encode()).hexdigest()[:16]
    return Candidate.of(digest, plain_module(task.kernel))
