"""A kernel run from request to result: untuned defaults, search, last timing."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from autotune.compiler.formulations import Formulation, formulations, prim_func
from autotune.compiler.programs import DEFAULT, Candidate, movement_stages, only_stages
from autotune.compiler.rules import cuts
from autotune.compiler.run.budget import Allocation, TaskSearches, next_allocation
from autotune.compiler.run.drift import DriftWatch
from autotune.compiler.run.experience import Experiences
from autotune.compiler.run.final_benchmark import Finalist, Verdict, benchmark_finalists
from autotune.compiler.run.known import Known
from autotune.compiler.run.progress import Progress
from autotune.compiler.run.resume import outcome_fields, restore
from autotune.compiler.run.task_state import TaskState, Trial
from autotune.compiler.run.trials import Building, BuildTargets, CandidateExecutor
from autotune.compiler.run.tuning_database import TuningDatabase
from autotune.compiler.run.warm_start import WarmStart
from autotune.compiler.runners import Builder, ReferenceData, Runner, target_text
from autotune.compiler.search import FormulationSearch, ScheduleRanker
from autotune.compiler.target import TuneRequest, cores, tvm_target
from autotune.errors import NothingMeasuredError, UsageError
from autotune.measurement import Outcome
from autotune.records import Result, Run, RunFolder
from autotune.scratch import Scratch
from autotune.workloads import Task
from autotune.workloads.operators import Kernel

LOGGER = logging.getLogger("autotune.run")
Interrupted = Callable[[], bool]
Traits = dict[str, dict[str, Any] | None]
_REFERENCE_S = 1e-3
_COMMITTEE = 4
"""Members of a cost model of tiles."""


@dataclass(frozen=True)
class Round:
    """Candidates of one search that are built and measured together, with the outcomes so far."""

    task_state: TaskState
    searcher: FormulationSearch
    candidates: list[Candidate]
    outcomes: list[tuple[Candidate, Outcome]] = field(default_factory=list)

    def learn(self) -> None:
        """Tells the search what became of the candidates."""
        self.searcher.observe(self.outcomes)


class KernelRun:
    """Tunes the kernels of one request, and records everything in a run folder.

    Args:
        request: What to tune.
        folder: The run folder, open for writing.
        runner: The device; started and stopped here.
        progress: Hears of the milestones.
        interrupted: Asked between trials; True ends the search early.
        earlier: The same run read back, to be carried on; None for a new one.
        known: Schedules of its kernels that other runs found, which are tried first.
        experiences: What records tell; None where none were asked.
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
        self._warm = (
            None if experiences is None else WarmStart(experiences, self._separate_searcher)
        )
        self._folder = folder
        self._runner = runner
        self._progress = progress
        self._interrupted = interrupted
        self._earlier = earlier
        self._cores = cores()
        self._rankers: dict[str, ScheduleRanker] = {}
        self._target: Any = None
        self._task_states: list[TaskState] = []
        self._database = TuningDatabase(folder)
        self._drift: DriftWatch | None = None
        self._done = 0

    def _task_state(self, index: int, task: Task) -> TaskState:
        request, kernel = self._request, task.kernel
        search = request.space.search
        searchers = [
            self._searcher(kernel, formulation, request.seed * 7919 + index * 31 + number)
            for number, formulation in enumerate(self._formulations(kernel))
        ]
        for searcher in searchers:
            searcher.give(self._known.get((kernel.name, searcher.formulation.name), ()))
        warmup = search.warmup_trials_memory_bound
        if kernel.is_compute:
            fair_share = request.trials // len(request.tasks) // len(searchers)
            warmup = max(search.warmup_trials, int(search.warmup_share * fair_share))
        return TaskState(
            task,
            TaskSearches(task.count, math.inf, warmup, searchers),
            self._default_candidate(task),
        )

    def _formulations(self, kernel: Kernel) -> Sequence[Formulation]:
        """Those to try: what the space prefers, unless no schedule of it fits the kernel and the device."""
        space = self._request.space
        names = space.formulations.get(f"{kernel.operator.name}.{kernel.role}")
        fitting = formulations(kernel, names, {rule.kind for rule in space.rules})
        preferred = space.preferred(fitting)
        return preferred if any(cuts(space, kernel, one) for one in preferred) else fitting

    def _searcher(self, kernel: Kernel, formulation: Formulation, seed: int) -> FormulationSearch:
        space, search = self._request.space, self._request.space.search
        small = (
            kernel.flops < search.serial_below_flops and kernel.bytes < search.serial_below_bytes
        )
        return FormulationSearch(
            kernel,
            formulation,
            space=space.without_threads() if small else space,
            target=self._target,
            ranker=self._ranker(formulation.rule),
            seed=1 + seed % (2**31 - 2),
            threads=self._cores,
        )

    def _ranker(self, rule: str) -> ScheduleRanker:
        """The cost model of the formulations that a rule of their own schedules, or of all the others."""
        if rule not in self._rankers:
            self._rankers[rule] = ScheduleRanker(
                seed=self._request.seed,
                warmup=self._request.space.search.model_warmup,
                members=_COMMITTEE if rule else 1,
            )
        return self._rankers[rule]

    def _separate_searcher(self, kernel: Kernel, formulation: str) -> FormulationSearch:
        """A search that is none of the run's, for what records know of other kernels.

        Raises:
            UsageError: This version, or the space, has no such formulation.
        """
        (chosen,) = formulations(kernel, [formulation])
        if chosen.rule and chosen.rule not in {rule.kind for rule in self._request.space.rules}:
            raise UsageError(f"the space has no rule {chosen.rule}, which {formulation} needs")
        return self._searcher(kernel, chosen, self._request.seed)

    def _take_up(self) -> float:
        """Takes up the trials of an earlier part of the run; returns the seconds that it took."""
        if self._earlier is None:
            return 0.0
        replayed, wall_s = restore(self._task_states, self._earlier)
        self._done = sum(len(searcher.candidates) for searcher in replayed)
        self._database.rewrite(replayed)
        return wall_s

    def _default_candidate(self, task: Task) -> Candidate:
        import tvm

        direct = formulations(task.kernel, ["direct"])[0]
        program = tvm.IRModule({"main": prim_func(task.kernel, direct)})
        digest = hashlib.sha256(f"{DEFAULT}:{task.kernel.name}".encode()).hexdigest()[:16]
        return Candidate.of(digest, program)

    def run(self) -> Result | None:
        """Carries the request out; None when it was interrupted before the last timing.

        Raises:
            RecordError: The run folder could not be written; what was recorded is intact.
            NothingMeasuredError: No kernel has a valid time.
        """
        began = time.monotonic()
        self._folder.event("started", trials=self._request.trials)
        with self._executor() as executor:
            self._task_states = [
                self._task_state(i, task) for i, task in enumerate(self._request.tasks)
            ]
            earlier_wall = self._take_up()
            self._measure_defaults(executor)
            if self._warm is not None:
                self._progress.phase("records", self._warm.steps(self._task_states))
                self._warm.begin(self._task_states, self._progress.step, self._interrupted)
                for rule, schedules in self._warm.taught.items():
                    self._folder.event("taught", rule=rule, schedules=schedules)
                    self._progress.notice(
                        f"records: the cost model of {rule} has learnt from {schedules} schedules of other kernels"
                    )
            self._search(executor)
            if self._interrupted():
                return None
            self._folder.event("searched", trials=self._done)
            verdicts = self._settle(executor)
            if self._interrupted() or verdicts is None:
                return None
            traits = self._traits(executor, verdicts)
        return self._conclude(verdicts, traits, earlier_wall + time.monotonic() - began)

    @contextmanager
    def _executor(self) -> Iterator[CandidateExecutor]:
        """Starts the workers, and imports TVM here while they do."""
        request, measure = self._request, self._request.space.measure
        made = Scratch("run")
        work = made.path
        builder = Builder(
            workers=self._cores,
            timeout_s=measure.build_timeout_s,
            temporary=work,
            programs=self._runner.programs,
            told=self._tell_kill,
        )
        self._runner.told = self._tell_kill
        try:
            builder.start()
            self._runner.start()
            limits = request.space.limits
            self._target = tvm_target(request.target, limits, request.space.compile)
            targets = BuildTargets(
                target_text(self._target), target_text(tvm_target(request.target, limits)), limits
            )
            needed = not self._runner.models
            data = ReferenceData(work / "data", request.seed, needed=needed)
            libraries = work / "libraries"
            with closing(
                CandidateExecutor(builder, self._runner, data, measure, targets, libraries)
            ) as executor:
                yield executor
        finally:
            builder.stop()
            self._runner.stop()
            made.close()

    def _tell_kill(self, text: str) -> None:
        """Records that a worker was killed by somebody else; called in the thread that it belongs to."""
        self._folder.event("worker_killed", message=text)
        self._progress.notice(text)

    def _measure_defaults(self, executor: CandidateExecutor) -> None:
        waiting = [
            task_state for task_state in self._task_states if task_state.default_outcome is None
        ]
        self._progress.phase("untuned defaults", len(waiting))
        libraries = executor.build([task_state.default for task_state in waiting], untuned=True)
        for done, (task_state, built) in enumerate(zip(waiting, libraries, strict=True), start=1):
            if self._interrupted():
                return
            if isinstance(built, Outcome):
                outcome = built
            else:
                outcome = executor.run(task_state.task.kernel, built, math.inf)
                task_state.default_library = built
            self._folder.event(
                DEFAULT,
                task=task_state.task.kernel.name,
                **self._device_fields(),
                **outcome_fields(outcome),
            )
            task_state.note_default(outcome)
            self._progress.step(done, task_state.task.kernel.name)

    def _search(self, executor: CandidateExecutor) -> None:
        """Spends the budget.

        While the workers build a round, the one before it is learnt from, and the next one is chosen and sampled.
        Nothing is built while the device measures where it is this very processor; while another device
        measures, the next round is built.
        """
        self._progress.phase("search", self._request.trials)
        self._progress.step(self._done, "")
        self._drift = self._watch_drift(executor)
        self._look_for_drift()
        previous, current = None, self._propose()
        building = executor.start(current.candidates) if current is not None else None
        while current is not None and building is not None:
            if previous is not None:
                previous.learn()
            following, ahead = self._propose(len(current.candidates)), None
            if following is not None and self._runner.apart:
                ahead = executor.start(following.candidates)
            self._measure(executor, current, building)
            self._look_for_drift()
            if following is not None and ahead is None:
                ahead = executor.start(following.candidates)
            previous, current, building = current, following, ahead
        if self._done < self._request.trials and not self._interrupted():
            self._progress.notice(self._exhausted())

    def _watch_drift(self, executor: CandidateExecutor) -> DriftWatch | None:
        """Takes the untuned default of a kernel with little data that is not lost in noise as the reference."""
        timed = [
            e for e in self._task_states if e.default_outcome is not None and e.default_outcome.ok
        ]
        if not timed or self._interrupted():
            return None
        task_state = min(
            timed, key=lambda e: (e.searchers.default_s < _REFERENCE_S, e.task.kernel.bytes)
        )
        entrant = self._default_entrant(executor, task_state)
        if entrant is None:
            return None
        kernel, library = task_state.task.kernel, entrant.library
        watch = DriftWatch(
            lambda: executor.reference(kernel, library), self._request.seed, kernel=kernel.name
        )
        if self._earlier is not None:
            watch.restore(self._earlier.events)
        return watch

    def _look_for_drift(self) -> None:
        if self._drift is None or self._interrupted():
            return
        for reference in self._drift.look(self._done):
            self._folder.event(
                "reference", task=self._drift.kernel, **outcome_fields(reference.outcome)
            )
            if reference.drift is not None:
                self._folder.event("drift", drift=asdict(reference.drift))
                self._progress.notice(f"drift: {reference.drift}")

    def _exhausted(self) -> str:
        done, asked = self._done, self._request.trials
        searchers = [
            searcher
            for task_state in self._task_states
            for searcher in task_state.searchers.searchers
        ]
        why = next((searcher.state.failure for searcher in searchers if searcher.state.failure), "")
        return f"every search space is exhausted after {done} of {asked} trials" + (
            f": {why}" if why else ""
        )

    def _device_fields(self) -> dict[str, Any]:
        device = self._runner.device
        return {"device": device.name, "stand_in": device.stand_in}

    def _propose(self, on_their_way: int = 0) -> Round | None:
        """The next round; None when the budget is spent, every search is exhausted, or at an interrupt."""
        request = self._request
        tasks = [task_state.searchers for task_state in self._task_states]
        while not self._interrupted():
            left = request.trials - self._done - on_their_way
            allocation = next_allocation(tasks, left, request.space.search.trials_per_round)
            if allocation is None:
                return None
            candidates = self._sample(self._task_states[allocation.task], allocation)
            if candidates:
                return Round(self._task_states[allocation.task], allocation.searcher, candidates)
        return None

    def _sample(self, task_state: TaskState, allocation: Allocation) -> list[Candidate]:
        began = time.monotonic()
        searcher = allocation.searcher
        candidates = searcher.propose(allocation.trials)
        accepted, rejected = searcher.samples()
        self._folder.event(
            "round",
            task=task_state.task.kernel.name,
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

    def _measure(self, executor: CandidateExecutor, current: Round, building: Building) -> None:
        def done(candidate: Candidate, outcome: Outcome) -> None:
            current.outcomes.append((candidate, outcome))
            self._record(current.task_state, current.searcher, candidate, outcome)

        executor.trial(
            current.task_state.task.kernel,
            building,
            current.task_state.searchers.best_s,
            done,
            self._interrupted,
        )

    def _record(
        self,
        task_state: TaskState,
        searcher: FormulationSearch,
        candidate: Candidate,
        outcome: Outcome,
    ) -> None:
        self._folder.event(
            "trial",
            task=task_state.task.kernel.name,
            formulation=searcher.formulation.name,
            digest=candidate.digest,
            **self._device_fields(),
            **outcome_fields(outcome),
            trace=candidate.trace,
        )
        epoch = len(self._drift.drifts) if self._drift else 0
        task_state.trials[candidate.digest] = Trial(candidate, searcher, outcome, epoch)
        self._done += 1
        if outcome.ok:
            self._database.store(searcher, candidate, outcome)
        best = task_state.searchers.best_s
        shown = f"best {1e3 * min(best, outcome.seconds):.3g} ms" if math.isfinite(best) else ""
        self._progress.step(self._done, f"{searcher.name} {outcome.status} {shown}".strip())

    def _settle(self, executor: CandidateExecutor) -> dict[str, Verdict] | None:
        measure = self._request.space.measure
        self._progress.phase("last timing", len(self._task_states))
        verdicts: dict[str, Verdict] = {}
        for done, task_state in enumerate(self._task_states, start=1):
            if self._interrupted():
                return None
            kernel = task_state.task.kernel
            verdict = benchmark_finalists(
                self._runner,
                executor.data(kernel),
                self._default_entrant(executor, task_state),
                self._entrants(executor, task_state),
                measure,
                self._request.seed,
            )
            verdict = replace(verdict, movement_s=self._movement(executor, task_state, verdict))
            verdicts[kernel.name] = verdict
            self._folder.event(
                "final",
                task=kernel.name,
                **self._device_fields(),
                winner=verdict.winner,
                default=task_state.default.digest,
                samples={digest: list(row) for digest, row in verdict.samples.items()},
                movement_s=verdict.movement_s,
                message=verdict.message,
                ties=list(verdict.ties),
                doubt=verdict.doubt,
                rejected=list(verdict.rejected),
            )
            self._progress.step(done, kernel.name)
        return verdicts

    def _movement(
        self, executor: CandidateExecutor, task_state: TaskState, verdict: Verdict
    ) -> float | None:
        """Seconds that the winner takes for moving data alone; None where they could not be measured."""
        if verdict.winner_s is None:
            return None
        untuned = verdict.winner == task_state.default.digest
        kernel, formulation, program = (
            task_state.task.kernel,
            "direct",
            task_state.default.scheduled(),
        )
        if not untuned:
            won = task_state.trials[verdict.winner]
            formulation, program = won.searcher.formulation.name, won.candidate.scheduled()
        stages = movement_stages(kernel, formulation)
        if stages is None:
            return verdict.winner_s
        part = only_stages(program, stages)
        if part is None:
            return 0.0
        moving = Candidate.of(f"{verdict.winner}-movement", part)
        (library,) = executor.build([moving], untuned=untuned)
        if isinstance(library, Outcome):
            return None
        return executor.seconds(kernel, library)

    @staticmethod
    def _default_entrant(executor: CandidateExecutor, task_state: TaskState) -> Finalist | None:
        outcome = task_state.default_outcome
        if outcome is None or not outcome.ok:
            return None
        library = task_state.default_library
        if library is None:  # measured in an earlier part of the run
            (built,) = executor.build([task_state.default], untuned=True)
            if isinstance(built, Outcome):
                return None
            library = task_state.default_library = built
        return Finalist(task_state.default.digest, library, outcome.seconds)

    def _entrants(self, executor: CandidateExecutor, task_state: TaskState) -> list[Finalist]:
        """The task's best candidates, built again."""
        leaders = task_state.leaders(self._request.space.measure.finalists)
        built = executor.build([task_state.trials[digest].candidate for digest, _ in leaders])
        return [
            Finalist(digest, path, seconds, task_state.trials[digest].candidate.half)
            for (digest, seconds), path in zip(leaders, built, strict=True)
            if not isinstance(path, Outcome)
        ]

    def _traits(self, executor: CandidateExecutor, verdicts: dict[str, Verdict]) -> Traits:
        """What the loops of the pools' schedules tell, by digest; nothing of programs for a GPU."""
        if self._request.target.family != "cpu":
            return {}
        defaults: list[Candidate] = []
        tuned: list[Candidate] = []
        for task_state in self._task_states:
            verdict = verdicts[task_state.task.kernel.name]
            for digest, _ in task_state.pool(verdict, self._request.space.measure.pool):
                candidate = task_state.candidate(digest)
                (defaults if candidate is task_state.default else tuned).append(candidate)
        return {**executor.traits(defaults, untuned=True), **executor.traits(tuned)}

    def _conclude(self, verdicts: dict[str, Verdict], traits: Traits, wall_s: float) -> Result:
        count = self._request.space.measure.pool
        results = tuple(
            e.result(verdicts[e.task.kernel.name], traits, count) for e in self._task_states
        )
        device = self._runner.device
        result = Result(
            self._request.target.name,
            device.to_json(),
            device.stand_in,
            self._done,
            wall_s,
            results,
            tuple(self._drift.drifts) if self._drift else (),
            self._warm.use(self._task_states) if self._warm else None,
        )
        self._folder.result(result.to_json())
        if all(task.tuned_ms is None for task in results):
            first = next((v.message for v in verdicts.values() if v.message), "")
            raise NothingMeasuredError(
                f"no kernel of this run has a valid time: {first}",
                hint=f"see the failures in {self._folder.path / 'events.jsonl'}",
            )
        return result
