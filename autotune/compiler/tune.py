"""A kernel run from request to result: untuned defaults, search, last timing."""

from __future__ import annotations

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

from autotune.compiler.budget import TaskLanes, next_turn
from autotune.compiler.builder import Builder, target_text
from autotune.compiler.cost_model import ScheduleRanker
from autotune.compiler.finals import Entrant, Verdict, finalists, settle
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.lane import Candidate, Lane
from autotune.compiler.progress import Progress
from autotune.compiler.reference_data import ReferenceData
from autotune.compiler.request import TuneRequest
from autotune.compiler.runner import Runner
from autotune.compiler.targets import tvm_target
from autotune.compiler.trials import Bench
from autotune.compiler.workers import scratch
from autotune.errors import NothingMeasuredError, RecordError
from autotune.measurement import Outcome
from autotune.records import Result, RunFolder, TaskResult
from autotune.records.folder import Run
from autotune.workloads.graph import Task

DEFAULT = "default"
Interrupted = Callable[[], bool]


@dataclass
class _Entry:
    """A task of the run with what is known of it."""

    task: Task
    lanes: TaskLanes
    default: Candidate
    default_outcome: Outcome | None = None
    trials: dict[str, tuple[Candidate, Lane, Outcome]] = field(default_factory=dict)

    def leaders(self, count: int) -> list[tuple[str, float]]:
        return finalists([(d, o.seconds) for d, (_, _, o) in self.trials.items()], count)


class KernelRun:
    """Tunes the kernels of one request, and records everything in a run folder.

    Args:
        request: What to tune.
        folder: The run folder, open for writing.
        runner: The device; started and stopped here.
        progress: Hears of the milestones.
        interrupted: Asked between trials; True ends the search early.
        earlier: The same run read back, to be carried on; None for a new one.
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
    ) -> None:
        self._request = request
        self._folder = folder
        self._runner = runner
        self._progress = progress
        self._interrupted = interrupted
        self._earlier = earlier
        self._cores = psutil.cpu_count(logical=False) or 1
        self._ranker = ScheduleRanker(seed=request.seed, warmup=request.space.search.model_warmup)
        self._target: Any = None
        self._entries: list[_Entry] = []
        self._workloads: dict[str, int] = {}
        self._done = 0

    def _entry(self, index: int, task: Task) -> _Entry:
        request, kernel = self._request, task.kernel
        search = request.space.search
        names = request.space.formulations.get(f"{kernel.operator.name}.{kernel.role}")
        chosen = formulations(kernel, names)
        small = (
            kernel.flops < search.serial_below_flops and kernel.bytes < search.serial_below_bytes
        )
        space = request.space.without_threads() if small else request.space
        lanes = [
            Lane(
                kernel,
                formulation,
                space=space,
                target=self._target,
                ranker=self._ranker,
                seed=1 + (request.seed * 7919 + index * 31 + number) % (2**31 - 2),
                threads=self._cores,
            )
            for number, formulation in enumerate(chosen)
        ]
        warmup = search.warmup_trials if kernel.is_compute else search.warmup_trials_memory_bound
        return _Entry(
            task, TaskLanes(task.count, math.inf, warmup, lanes), self._default_candidate(task)
        )

    def _default_candidate(self, task: Task) -> Candidate:
        import tvm

        direct = formulations(task.kernel, ["direct"])[0]
        program = tvm.IRModule({"main": prim_func(task.kernel, direct)})
        digest = hashlib.sha256(f"{DEFAULT}:{task.kernel.name}".encode()).hexdigest()[:16]
        return Candidate(digest, None, str(tvm.ir.save_json(program)), None)

    def run(self) -> Result | None:
        """Carries the request out; None when it was interrupted before the last timing.

        Raises:
            RecordError: The run folder could not be written; what was recorded is intact.
            NothingMeasuredError: No kernel has a valid time.
        """
        began = time.monotonic()
        with self._bench() as bench:
            self._entries = [self._entry(i, task) for i, task in enumerate(self._request.tasks)]
            earlier_wall = self._restore()
            self._measure_defaults(bench)
            self._search(bench)
            self._folder.event(
                "searched", wall_s=round(time.monotonic() - began, 3), trials=self._done
            )
            if self._interrupted():
                return None
            verdicts = self._settle(bench)
        if not self._interrupted() and verdicts is not None:
            return self._conclude(verdicts, earlier_wall + time.monotonic() - began)
        return None

    @contextmanager
    def _bench(self) -> Iterator[Bench]:
        """Starts the workers, and imports TVM here while they do."""
        request, measure = self._request, self._request.space.measure
        builder = Builder(workers=self._cores, timeout_s=measure.build_timeout_s)
        work = scratch("run")
        try:
            builder.start()
            self._runner.start()
            self._target = tvm_target(request.target, request.space.limits)
            yield Bench(
                builder,
                self._runner,
                ReferenceData(work / "data", request.seed),
                measure,
                target_text(self._target),
                work / "libraries",
            )
        finally:
            builder.stop()
            self._runner.stop()
            shutil.rmtree(work, ignore_errors=True)

    # -- defaults ------------------------------------------------------------------------------------------

    def _measure_defaults(self, bench: Bench) -> None:
        waiting = [entry for entry in self._entries if entry.default_outcome is None]
        self._progress.phase("untuned defaults", len(waiting))
        libraries = bench.build([entry.default for entry in waiting], untuned=True)
        for done, (entry, built) in enumerate(zip(waiting, libraries, strict=True), start=1):
            if self._interrupted():
                return
            outcome = (
                built
                if isinstance(built, Outcome)
                else bench.run(entry.task.kernel, built, math.inf)
            )
            self._folder.event(
                DEFAULT,
                task=entry.task.kernel.name,
                device=self._runner.device.name,
                stand_in=self._runner.device.stand_in,
                **_outcome_fields(outcome),
            )
            self._note_default(entry, outcome)
            self._progress.step(done, entry.task.kernel.name)

    @staticmethod
    def _note_default(entry: _Entry, outcome: Outcome) -> None:
        entry.default_outcome = outcome
        entry.lanes.default_s = outcome.seconds

    # -- search --------------------------------------------------------------------------------------------

    def _search(self, bench: Bench) -> None:
        request = self._request
        self._progress.phase("search", request.trials)
        self._progress.step(self._done, "")
        tasks = [entry.lanes for entry in self._entries]
        round_size = request.space.search.trials_per_round
        while not self._interrupted():
            turn = next_turn(tasks, request.trials - self._done, round_size)
            if turn is None:
                if self._done < request.trials:
                    self._progress.notice(
                        f"every search space is exhausted after {self._done} of {request.trials} trials"
                    )
                return
            self._round(bench, self._entries[turn.task], turn.lane, turn.trials)

    def _round(self, bench: Bench, entry: _Entry, lane: Lane, trials: int) -> None:
        began = time.monotonic()
        candidates = lane.propose(trials)
        accepted, rejected = lane.samples()
        self._folder.event(
            "round",
            task=entry.task.kernel.name,
            formulation=lane.formulation.name,
            asked=trials,
            proposed=len(candidates),
            accepted=accepted,
            rejected=rejected,
            search_s=round(time.monotonic() - began, 3),
            exhausted=lane.state.exhausted,
            failure=lane.state.failure,
        )
        measured: list[Candidate] = []
        outcomes: list[Outcome] = []

        def done(candidate: Candidate, outcome: Outcome) -> None:
            measured.append(candidate)
            outcomes.append(outcome)
            self._record(entry, lane, candidate, outcome)

        bench.trial(entry.task.kernel, candidates, entry.lanes.best_s, done, self._interrupted)
        lane.observe(measured, outcomes)

    def _record(self, entry: _Entry, lane: Lane, candidate: Candidate, outcome: Outcome) -> None:
        self._folder.event(
            "trial",
            task=entry.task.kernel.name,
            formulation=lane.formulation.name,
            digest=candidate.digest,
            device=self._runner.device.name,
            stand_in=self._runner.device.stand_in,
            **_outcome_fields(outcome),
            trace=candidate.trace,
        )
        entry.trials[candidate.digest] = (candidate, lane, outcome)
        self._done += 1
        if outcome.ok:
            self._store(lane, candidate, outcome)
        best = entry.lanes.best_s
        shown = f"best {1e3 * min(best, outcome.seconds):.3g} ms" if math.isfinite(best) else ""
        self._progress.step(self._done, f"{lane.name} {outcome.status} {shown}".strip())

    def _store(self, lane: Lane, candidate: Candidate, outcome: Outcome) -> None:
        """Adds a valid trial to TVM's own database files."""
        if lane.name not in self._workloads:
            self._folder.database_workload(lane.workload_record())
            self._workloads[lane.name] = len(self._workloads)
        self._folder.database_record(
            self._workloads[lane.name], lane.tuning_record(candidate, outcome)
        )

    # -- the last timing -----------------------------------------------------------------------------------

    def _settle(self, bench: Bench) -> dict[str, Verdict] | None:
        measure = self._request.space.measure
        self._progress.phase("last timing", len(self._entries))
        verdicts: dict[str, Verdict] = {}
        for done, entry in enumerate(self._entries, start=1):
            if self._interrupted():
                return None
            kernel = entry.task.kernel
            verdict = settle(
                self._runner,
                bench.data(kernel),
                self._default_entrant(bench, entry),
                self._entrants(bench, entry),
                measure,
                self._request.seed,
            )
            verdicts[kernel.name] = verdict
            self._folder.event(
                "final",
                task=kernel.name,
                winner=verdict.winner,
                default=entry.default.digest,
                samples={digest: list(row) for digest, row in verdict.samples.items()},
                message=verdict.message,
            )
            self._progress.step(done, kernel.name)
        return verdicts

    @staticmethod
    def _default_entrant(bench: Bench, entry: _Entry) -> Entrant | None:
        outcome = entry.default_outcome
        if outcome is None or not outcome.ok:
            return None
        (built,) = bench.build([entry.default], untuned=True)
        if isinstance(built, Outcome):
            return None
        return Entrant(entry.default.digest, built, outcome.seconds)

    def _entrants(self, bench: Bench, entry: _Entry) -> list[Entrant]:
        """The task's best candidates, built again."""
        leaders = entry.leaders(self._request.space.measure.finalists)
        built = bench.build([entry.trials[digest][0] for digest, _ in leaders])
        return [
            Entrant(digest, path, seconds)
            for (digest, seconds), path in zip(leaders, built, strict=True)
            if not isinstance(path, Outcome)
        ]

    def _conclude(self, verdicts: dict[str, Verdict], wall_s: float) -> Result:
        results = tuple(self._task_result(e, verdicts[e.task.kernel.name]) for e in self._entries)
        device = self._runner.device
        result = Result(
            self._request.target.name,
            device.to_json(),
            device.stand_in,
            self._done,
            wall_s,
            results,
        )
        self._folder.result(result.to_json())
        if all(task.tuned_ms is None for task in results):
            first = next((v.message for v in verdicts.values() if v.message), "")
            raise NothingMeasuredError(
                f"no kernel of this run has a valid time: {first}",
                hint=f"see the failures in {self._folder.path / 'events.jsonl'}",
            )
        return result

    def _task_result(self, entry: _Entry, verdict: Verdict) -> TaskResult:
        kernel = entry.task.kernel
        outcomes = [outcome for _, _, outcome in entry.trials.values()]
        failures: dict[str, int] = {}
        for outcome in outcomes:
            if not outcome.ok:
                failures[outcome.status] = failures.get(outcome.status, 0) + 1
        won = entry.trials.get(verdict.winner)
        interval, seconds = verdict.speedup, verdict.winner_s
        return TaskResult(
            name=kernel.name,
            operator=kernel.operator.name,
            role=kernel.role,
            spec=kernel.spec,
            count=entry.task.count,
            default_ms=_ms(verdict.default_s),
            tuned_ms=_ms(seconds),
            speedup=interval.estimate if interval else None,
            ci=(interval.low, interval.high) if interval else None,
            gflops=kernel.flops / seconds / 1e9 if seconds else None,
            trials=len(outcomes),
            valid=sum(outcome.ok for outcome in outcomes),
            failures=failures,
            max_rel_error=verdict.max_rel_error,
            formulation=won[1].formulation.name if won else "direct",
            digest=verdict.winner if won else DEFAULT,
        )

    # -- resuming ------------------------------------------------------------------------------------------

    def _restore(self) -> float:
        """Takes up the trials of an earlier part of the run; returns the seconds that it took."""
        if self._earlier is None:
            return 0.0
        by_name = {entry.task.kernel.name: entry for entry in self._entries}
        batches: dict[str, tuple[Lane, list[Candidate], list[Outcome]]] = {}
        wall = 0.0
        for event in self._earlier.events:
            if event["event"] == "searched":
                wall += event["wall_s"]
            if event["event"] not in (DEFAULT, "trial"):
                continue
            entry = by_name.get(event["task"])
            if entry is None:
                raise RecordError(
                    f"{self._folder.path}: a record of an unknown task {event['task']}"
                )
            outcome = _outcome(event)
            if event["event"] == DEFAULT:
                self._note_default(entry, outcome)
                continue
            lane = next(
                (x for x in entry.lanes.lanes if x.formulation.name == event["formulation"]), None
            )
            if lane is None:
                raise RecordError(
                    f"{self._folder.path}: a record of an unknown formulation {event['formulation']}"
                )
            candidate = lane.replay(event["trace"])
            if candidate.digest in entry.trials:
                continue
            entry.trials[candidate.digest] = (candidate, lane, outcome)
            _, candidates, outcomes = batches.setdefault(lane.name, (lane, [], []))
            candidates.append(candidate)
            outcomes.append(outcome)
            self._done += 1
        for lane, candidates, outcomes in batches.values():
            lane.observe(candidates, outcomes)
        self._restore_database(batches)
        return wall

    def _restore_database(
        self, batches: dict[str, tuple[Lane, list[Candidate], list[Outcome]]]
    ) -> None:
        """Writes TVM's database files again where a kill left them behind the events."""
        lines = self._folder.database_workloads()
        by_hash = {str(line[0]): index for index, line in enumerate(lines)}
        for name, (lane, _, _) in batches.items():
            index = by_hash.get(str(lane.workload_record()[0]))
            if index is not None:
                self._workloads[name] = index
        valid = [
            (lane, candidate, outcome)
            for lane, candidates, outcomes in batches.values()
            for candidate, outcome in zip(candidates, outcomes, strict=True)
            if outcome.ok
        ]
        if self._folder.database_size() < len(valid) or len(lines) > len(self._workloads):
            self._folder.clear_database()
            self._workloads = {}
            for lane, candidate, outcome in valid:
                self._store(lane, candidate, outcome)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "samples_s": list(outcome.samples),
        "message": outcome.message,
        "max_rel_error": outcome.max_rel_error,
    }


def _outcome(event: dict[str, Any]) -> Outcome:
    return Outcome(
        event["status"], tuple(event["samples_s"]), event["message"], event["max_rel_error"]
    )
