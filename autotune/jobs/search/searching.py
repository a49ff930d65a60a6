"""A search over cores and clocks, alone or together with schedules: from its request to its run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.console import LiveProgress, stop_on_interrupt
from autotune.errors import DeviceError, NothingMeasuredError, StableDeviceError, UsageError
from autotune.jobs.device import ChosenDevice, Program, choose, find_meter, ready
from autotune.jobs.provenance import RunInterrupted, Work, about_run, how_to_resume, named
from autotune.jobs.requests import (
    BLOCKS,
    DEFAULT_BATCH,
    PUT_BACK,
    SearchRequest,
    StepRequest,
    allow,
    check_allowed,
    outside,
)
from autotune.jobs.search.joint_kernels import kernels_first
from autotune.jobs.search.joint_plans import (
    forms_on_device,
    joint_bench,
    kept_choice,
    plan_points,
    write_plans,
)
from autotune.jobs.search.study_storage import (
    same_storage,
    shared_study,
    study_place,
    with_study_name,
)
from autotune.jobs.steps import (
    DeviceWorkload,
    OpenChoice,
    brought,
    calibrated,
    given_command,
    protocol_of,
    recorder,
    start_band,
)
from autotune.measurement import StepBench, body_zone
from autotune.power import Meter
from autotune.reading import reading
from autotune.records import Run, RunFolder, read_run
from autotune.studies.evaluators import DeviceEvaluator, Measured, setting_of
from autotune.studies.joint import (
    FormOnDevice,
    JointEvaluator,
    JointOutcome,
    JointRun,
    KeptSchedules,
    Sequential,
)
from autotune.studies.plans import PlanRun, candidates
from autotune.studies.run import (
    REFERENCE_EVERY,
    CpuConfigRun,
    Found,
    Outcome,
    Study,
    StudyRequest,
    explained_faults,
    found_of,
    hidden,
    nearest_text,
    result,
    study_of,
)
from autotune.studies.space import CpuConfiguration, emulated_text, needs_energy

Events = tuple[dict[str, Any], ...]
Listener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class SearchResult:
    """A finished search.

    Attributes:
        path: Its run's folder.
        content: Content of its `result.json`.
    """

    path: Path
    content: dict[str, Any]


class Search:
    """Carries out one search.

    Args:
        request: The request.
        logs: Folder that a new run's folder is made in.
        earlier: The run to resume; None for a new one.
        listeners: Functions that are called with each event that the run records.
    """

    def __init__(
        self,
        request: SearchRequest,
        logs: Path | None,
        *,
        earlier: Run | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._request = request
        self._logs = logs or Path("logs")
        self._earlier = earlier
        self._events: Events = earlier.events if earlier else ()
        self._listeners = listeners

    @classmethod
    def resumed(cls, path: Path, given: SearchRequest, logs: Path | None) -> Search:
        """Returns the search of a run to resume.

        Args:
            path: The run's folder.
            given: Options given with it. Only trials are allowed, and a storage to supply its password.
            logs: Must be None, because the run already has a folder.

        Raises:
            UsageError: Other options are given, or it is another kind of run.
        """
        if logs is not None or given != SearchRequest(
            joint=given.joint, trials=given.trials, storage=given.storage
        ):
            raise UsageError(
                "--resume continues the run with its original options",
                hint="give only --trials with it, to measure more",
            )
        earlier = read_run(path)
        about = earlier.about.get("request", {})
        if "objective" not in about or bool(about.get("joint")) != given.joint:
            raise UsageError(
                f"{path} is not a run of {given.command_name}",
                hint=f"autotune joint --resume {path}" if about.get("joint") else "",
            )
        request = SearchRequest.of_run(earlier)
        if given.storage is not None:
            request = replace(request, storage=same_storage(request.storage, given.storage))
            allow(outside(storage=request.storage))
        check_allowed(path, request.outside())
        if given.trials is not None:
            request = replace(request, trials=given.trials)
        return cls(request.checked(), logs, earlier=earlier)

    @classmethod
    def new(
        cls, request: SearchRequest, logs: Path | None, listeners: Sequence[Listener] = ()
    ) -> Search:
        """Returns a new search; `listeners` are called with each event that the run records.

        Raises:
            UsageError: An option is invalid.
        """
        checked = request.checked()
        if checked.step is not None:
            checked.step.check()
        allow(checked.outside())
        return cls(checked, logs, listeners=listeners)

    def run(self) -> SearchResult:
        """Searches, and writes the run's folder.

        Raises:
            RunInterrupted: Ctrl-C was pressed; all measurements are kept.
            UsageError: The request is not possible on this device.
            NothingMeasuredError: No configuration has a valid measurement.
            DeviceError: The device is gone, or lacks a meter that is needed.
        """
        prepared = self._prepared()
        with self._opened(prepared) as opened:
            outcome, content = opened.searched()
        if content["best"] is None:
            raise _nothing_measured(
                found_of(prepared.study, outcome), prepared.study, outcome, opened.path
            )
        return SearchResult(opened.path, content)

    def _prepared(self) -> _Prepared:
        """Returns what is known before anything is made or measured."""
        request = self._request
        step = request.step
        if step is not None and self._earlier is not None:
            step = step.placed(self._earlier.path, PUT_BACK)
            # The model keeps its old name: processes that share a study know it by that name.
            assert request.step is not None
            request = replace(
                request, step=replace(request.step, runs=step.runs, gpu_runs=step.gpu_runs)
            )
        command = given_command(
            step, request.command, request.steps_from, emulated=request.emulated
        )
        chosen = choose(request.device, request.ssh, request.emulate)
        study = request.study_request(chosen)
        _check_device(request, step, study, chosen)
        wanted = needs_energy(study.objective, study.limits)
        meter = find_meter(chosen, request.meter or "auto", needed=wanted)
        if self._earlier is None:
            request = with_study_name(request, study, chosen.info.soc)
        if request.joint and step is not None and not step.runs:
            tuned = kernels_first(request, step, chosen, self._logs)
            step = replace(step, runs=(str(tuned.absolute()),))
            request = replace(request, step=step)
            study = replace(study, workload=request.workload_text())
        # A study that other processes share is refused before anything is made or measured.
        shared = shared_study(request, study)
        return _Prepared(request, chosen, study, step, command, meter, wanted, shared)

    @contextmanager
    def _opened(self, prepared: _Prepared) -> Iterator[_OpenSearch]:
        """Yields the search with its workload on the device and its run's folder open."""
        request, chosen = prepared.request, prepared.chosen
        name = request.command_name
        choice = OpenChoice(prepared.study.limits.memory_bytes) if request.joint else None
        with (
            LiveProgress() as progress,
            brought(prepared.step, prepared.command, chosen, progress, choice=choice) as workload,
            self._folder(prepared) as folder,
            explained_faults(
                f"what was measured is in {folder.path}: autotune {name} --resume {folder.path}"
            ),
            stop_on_interrupt(how_to_resume(folder.path, name)) as interrupted,
        ):
            folder.listeners += self._listeners
            progress.notice(f"run folder: {folder.path}")
            if request.storage is not None:
                progress.notice(f"study: '{request.study}' in {hidden(request.storage)}")
            if chosen.info.emulated:
                progress.notice(emulated_text(chosen.info.emulated))
            if not chosen.info.rooted:
                progress.notice("no root: clocks are left to the system, and only observed")
            # A resumed run begins measurements at the same temperatures as before.
            band = start_band(request, self._events)
            with ready(chosen, workload.bring, prepared.meter, protocol_of(request), band) as steps:
                if band is None and steps.band is not None:
                    folder.event(
                        "start_temperature", low_c=steps.band.low_c, high_c=steps.band.high_c
                    )
                yield _OpenSearch(
                    prepared, self._earlier, steps, workload, folder, progress, interrupted
                )

    def _folder(self, prepared: _Prepared) -> RunFolder:
        """Returns the run's folder. It is made this late so that a bad option leaves no folder behind."""
        if self._earlier is not None:
            return RunFolder.reopen(self._earlier.path)
        request, chosen = prepared.request, prepared.chosen
        kept = replace(request, storage=request.storage and hidden(request.storage))
        about = about_run(kept.to_json(), chosen.about())
        return RunFolder.create(self._logs, f"{request.command_name}-{chosen.info.soc}", about)


@dataclass(frozen=True)
class _Prepared:
    """A search before its device is touched."""

    request: SearchRequest
    chosen: ChosenDevice
    study: StudyRequest
    step: StepRequest | None
    command: Program | None
    meter: Meter | None
    needs_energy: bool
    shared: Study | None


class _OpenSearch:
    """A search with its workload on the device.

    Args:
        prepared: The search to carry out.
        earlier: The run that is resumed; None for a new one.
        steps: The device.
        workload: The workload on the device.
        folder: The run's folder.
        progress: Receives milestones.
        interrupted: Returns whether to stop.
    """

    def __init__(
        self,
        prepared: _Prepared,
        earlier: Run | None,
        steps: StepBench,
        workload: DeviceWorkload,
        folder: RunFolder,
        progress: LiveProgress,
        interrupted: Callable[[], bool],
    ) -> None:
        self._prepared, self._earlier = prepared, earlier
        self._events: Events = earlier.events if earlier else ()
        self._steps, self._workload = steps, workload
        self._folder, self._progress = folder, progress
        self._interrupted = interrupted
        request = prepared.request
        self._blocks = BLOCKS if request.blocks is None else request.blocks
        every = request.reference_every
        self._every = REFERENCE_EVERY if every is None else every
        self._evaluator = DeviceEvaluator(
            steps, needs_energy=prepared.needs_energy, limits=prepared.study.limits
        )
        self._joint: JointEvaluator | None = None

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._folder.path

    def searched(self) -> tuple[Outcome, dict[str, Any]]:
        """Searches and writes the run's result. Returns the outcome and the result.

        Raises:
            RunInterrupted: Ctrl-C was pressed.
        """
        prepared, request = self._prepared, self._prepared.request
        calibrated(
            self._steps,
            setting_of(self._evaluator.clusters, None),
            self._folder,
            self._progress,
            needed=prepared.needs_energy,
        )
        study = prepared.shared or study_of(prepared.study, *study_place(request, self._folder))
        whole = self._searched_jointly(study) if request.joint else None
        outcome = whole.outcome if whole else None if request.joint else self._searched_alone(study)
        planned = None
        if outcome is not None and request.per_operator:
            planned = self._per_operator(found_of(prepared.study, outcome))
            if planned is None and self._interrupted():
                outcome = None
        if outcome is None:
            raise RunInterrupted(self.path, request.command_name)
        assert request.trials is not None
        content = result(study, self._evaluator, outcome, searched=request.trials)
        if request.per_operator:
            content["per_operator"] = planned
        if whole is not None:
            self._add_joint(content, whole)
        step = prepared.request.step
        model, batch = (step.model, step.batch or DEFAULT_BATCH) if step else (None, None)
        resumed = self._earlier.about if self._earlier else None
        content = named(content, Work(self.path, model, batch), resumed=resumed)
        self._folder.result(content)
        return outcome, content

    def _searched_alone(self, study: Study) -> Outcome | None:
        with reading(self.path):
            run = CpuConfigRun(
                study, self._evaluator, recorder(self._folder), self._progress, interrupted=self._interrupted,
                blocks=self._blocks, reference_every=self._every, events=self._events,
            )  # fmt: skip
        return run.run()

    def _searched_jointly(self, study: Study) -> JointOutcome | None:
        prepared = self._prepared
        with reading(self.path):
            joint = joint_bench(
                self._steps, self._evaluator, self._workload, prepared.study, self._events
            )
        self._joint = joint
        joint.others = study.trials
        beside = None
        if prepared.request.sequential is not False:
            storage, label = study_place(prepared.request, self._folder)
            alone = replace(prepared.study, workload=f"{prepared.study.workload} sequential")
            names = [cluster.name for cluster in self._evaluator.clusters]
            kept = KeptSchedules(joint, partial(kept_choice, self._workload, names))
            beside = Sequential(study_of(alone, storage, f"{label}-sequential"), kept)
        with reading(self.path):
            run = JointRun(
                study, joint, beside, recorder(self._folder), self._progress,
                interrupted=self._interrupted, blocks=self._blocks, reference_every=self._every,
                events=self._events,
            )  # fmt: skip
        return run.run()

    def _add_joint(self, content: dict[str, Any], whole: JointOutcome) -> None:
        """Adds the parts of a result that only a joint search has, and writes its plans."""
        assert self._joint is not None
        assert self._workload.pools is not None
        content["sequential"], content["placement"] = whole.sequential, whole.placement
        content["warnings"] = list(self._workload.pools.warnings)
        self._joint.listen()
        points = plan_points(self._joint, self._workload, content)
        content["plans"] = write_plans(
            self._folder, self._joint, self._workload, self._prepared.request, points
        )

    def _per_operator(self, found: Found) -> dict[str, Any] | None:
        """Plans a configuration for each operator and measures the plan.

        Returns None if this fails or is interrupted.
        """
        assert self._workload.graph is not None
        study, joint = self._prepared.study, self._joint
        chosen, form = candidates(found), 0
        used = None
        if joint is not None and chosen:
            # A step has one form in all of its settings.
            form = joint.choose(chosen[0]).form
            chosen = [one for one in chosen if joint.choose(one).form == form]
            used = partial(_used, joint, forms_on_device(self._workload)[form])
        if not chosen:
            return None  # The run has no best configuration; it ends by saying so.
        # The switches between configurations are measured too.
        self._progress.phase("per operator", len(chosen) + 1 + 2 * self._blocks)
        done = 0
        record = recorder(self._folder)

        def on_measured(kind: str, what: dict[str, Any], measured: Measured) -> None:
            nonlocal done
            done += 1
            record(kind, what, measured)
            self._progress.step(done, kind)

        pools = self._workload.pools
        graph = pools.forms[form].graph if pools else self._workload.graph
        planning = PlanRun(
            self._steps, self._workload.runners[form], graph, study.objective, study.limits, study.seed,
            self._blocks, on_measured, self._interrupted, used,
        )  # fmt: skip
        try:
            return planning.run(chosen)
        except StableDeviceError as error:
            self._progress.notice(f"no plan per operator: {error.message}")
            return None


def _check_device(
    request: SearchRequest, step: StepRequest | None, study: StudyRequest, chosen: ChosenDevice
) -> None:
    """Refuses a request that the device or the workload does not support."""
    if step is not None and step.gpu_runs and request.emulated:
        raise UsageError(
            "--gpu-run: the models of phones have no GPU",
            hint="leave it out, or search on a device",
        )
    if study.limits.celsius is not None and body_zone(chosen.info) is None:
        raise DeviceError(
            f"{chosen.info.serial} has no temperature sensor that can be read, and --max-temperature needs one",
            hint="root may be needed to read one; or leave the limit out",
        )


def _nothing_measured(
    found: Found, request: StudyRequest, outcome: Outcome, folder: Path
) -> NothingMeasuredError:
    """Returns the error that says why a search has no best configuration."""
    count, hint = len(outcome.trials), f"see {folder}/events.jsonl"
    if found.figures:
        nearest = nearest_text(found, request.limits, [c.name for c in request.space.clusters])
        return NothingMeasuredError(
            f"none of {count} configurations meets the limits: {nearest}", hint=hint
        )
    wrong = [t.message for t in outcome.trials if t.message]
    last = f"; the last said: {wrong[-1]}" if wrong else ""
    return NothingMeasuredError(
        f"none of {count} configurations gave a valid measurement{last}", hint=hint
    )


def _used(
    joint: JointEvaluator, form: FormOnDevice, configuration: CpuConfiguration
) -> dict[int, int]:
    return form.used(joint.choose(configuration))


__all__ = ["Search", "SearchResult"]
