"""What `autotune cpu-config` does: a search on a device, its plan per operator, and its run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.cli import bench as benches
from autotune.cli.bench import Chosen
from autotune.cli.cpu_config import LARGEST, TRIALS
from autotune.cli.cpu_config_table import show
from autotune.cli.device_workload import (
    DeviceWorkload,
    OpenChoice,
    brought,
    given_command,
)
from autotune.cli.joint_kernels import kernels_first
from autotune.cli.joint_plans import (
    forms_on_device,
    joint_bench,
    kept_choice,
    plan_points,
    write_plans,
)
from autotune.cli.output import named, write_json, write_next
from autotune.cli.search_options import BLOCKS, SEED
from autotune.cli.step_options import PUT_BACK, StepOptions
from autotune.cli.step_records import calibrated, protocol_of, recorder, start_band
from autotune.cli.study_place import (
    lasting,
    lasting_space,
    same_storage,
    shared_study,
    study_place,
    with_study_name,
)
from autotune.cli.trust import allow, check_allowed, outside
from autotune.cli.tuning import LiveProgress, about_this, stop_on_interrupt, tell_interrupted
from autotune.cli.workload import DEFAULT_BATCH
from autotune.errors import (
    INTERRUPTED,
    DeviceError,
    NothingMeasuredError,
    StableDeviceError,
    UsageError,
)
from autotune.measurement import StepBench, body_zone
from autotune.reading import reading
from autotune.records import RunFolder, read_run
from autotune.studies.bench import DeviceBench, Measured, setting_of
from autotune.studies.joint import FormOnDevice, JointBench, JointRun, KeptSchedules
from autotune.studies.plans import PlanRun, candidates
from autotune.studies.run import (
    REFERENCE_EVERY,
    SAMPLERS,
    CpuConfigRun,
    Found,
    Outcome,
    StudyRequest,
    faults_told,
    found_of,
    hidden,
    nearest_text,
    result,
    study_of,
)
from autotune.studies.space import OBJECTIVES, CpuConfiguration, CpuSpace, needs_energy

_LARGEST_SEED = 2**32 - 1
"""Optuna's samplers draw by NumPy's older generator."""


def run_search(
    asked: dict[str, Any],
    trials: int | None,
    logs: Path | None,
    resume: Path | None,
    *,
    as_json: bool,
) -> int:
    """Searches as it was asked for, or goes on with a run; writes its folder, and prints what was found.

    Returns:
        The exit code.

    Raises:
        UsageError: What was asked for makes no sense.
        NothingMeasuredError: No configuration has a valid measurement.
        DeviceError: The device is gone, or has no meter that is needed.
    """
    events: tuple[dict[str, Any], ...] = ()
    joint = bool(asked.pop("joint", False)) if resume is not None else bool(asked.get("joint"))
    if resume is not None:
        storage = asked.pop("storage")
        if logs is not None or any(value is not None for value in asked.values()):
            raise UsageError(
                "--resume goes on with the run as it was asked for",
                hint="give only --trials beside it, to measure more",
            )
        earlier = read_run(resume)
        asked, events = earlier.about.get("request", {}), earlier.events
        if "objective" not in asked or bool(asked.get("joint")) != joint:
            raise UsageError(
                f"{resume} is no run of {'joint' if joint else 'cpu-config'}",
                hint=f"autotune joint --resume {resume}" if asked.get("joint") else "",
            )
        if storage is not None:
            asked["storage"] = same_storage(asked["storage"], storage)
            allow(outside({"storage": asked["storage"]}))
        check_allowed(resume, outside(asked))
        trials = asked["trials"] if trials is None else trials
    else:
        asked |= {"space": lasting_space(asked["space"]), "storage": lasting(asked["storage"])}
        allow(outside(asked))
    trials = TRIALS if trials is None else trials
    _check(asked)
    name = "joint" if joint else "cpu-config"
    chosen = benches.choose(asked["device"], asked["ssh"] or (), asked["emulate"])
    request = _request(asked, trials, chosen)
    if asked.get("exhaustive"):
        size = request.space.size
        if size > LARGEST:
            raise UsageError(
                f"--exhaustive: the space has {size} configurations, and {LARGEST} are measured at most",
                hint="give a smaller --space",
            )
        request = replace(request, trials=size)
    step = StepOptions.from_json(asked["step"]) if asked.get("step") else None
    if step is not None and resume is not None:
        step = step.placed(resume, PUT_BACK)
        # The model is called as it was: processes that share a study know it by that name.
        asked["step"] |= {"runs": list(step.runs), "gpu_runs": list(step.gpu_runs)}
    command = given_command(
        step, asked["command"], asked["steps_from"], emulated=asked["emulate"] is not None
    )
    if step is not None and step.gpu_runs and asked["emulate"] is not None:
        raise UsageError(
            "--gpu-run: the models of phones have no GPU",
            hint="leave it out, or search on a device",
        )
    if asked.get("per_operator") and step is None:
        raise UsageError(
            "--per-operator needs --model: another program does not go through settings",
            hint="`autotune profile --command` tells what its calls take",
        )
    if request.limits.celsius is not None and body_zone(chosen.info) is None:
        raise DeviceError(
            f"{chosen.info.serial} has no temperature sensor that can be read, and --max-temperature needs one",
            hint="root may be needed to read one; or leave the limit out",
        )
    wanted = needs_energy(request.objective, request.limits)
    meter = benches.meter(chosen, asked["meter"] or "auto", needed=wanted)
    if resume is None:
        asked = with_study_name(asked, request, chosen.info.soc)
    kept = asked["storage"] and hidden(asked["storage"])
    if joint and step is not None and not step.runs:
        tuned = kernels_first(asked, step, chosen, logs or Path("logs"))
        if tuned is None:
            return INTERRUPTED
        step = replace(step, runs=(str(tuned.absolute()),))
        asked["step"] = step.to_json()
        request = replace(request, workload=_workload_text(asked))
    about = about_this(
        {**asked, "trials": trials, "storage": kept},
        chosen.info.to_json() | {"name": chosen.info.serial},
    )
    # A study that others share is refused before anything is made or measured.
    shared = shared_study(asked, request)
    blocks = BLOCKS if asked["blocks"] is None else asked["blocks"]
    every = asked.get("reference_every")
    with (
        LiveProgress() as progress,
        brought(
            step,
            command,
            chosen,
            progress,
            choice=OpenChoice(request.limits.memory_bytes) if joint else None,
        ) as workload,
        (
            # Only now: a bad option leaves no folder behind.
            RunFolder.reopen(resume)
            if resume is not None
            else RunFolder.create(logs or Path("logs"), f"{name}-{chosen.info.soc}", about)
        ) as folder,
        faults_told(
            f"what was measured is in {folder.path}: autotune {name} --resume {folder.path}"
        ),
        stop_on_interrupt(folder.path, name) as interrupted,
    ):
        progress.notice(f"run folder: {folder.path}")
        if chosen.info.emulated:
            progress.notice(f"{chosen.info.emulated}: times and joules are a model's")
        if not chosen.info.rooted:
            progress.notice("no root: clocks are left to the system, and only observed")
        # A run that goes on begins its measurements at the temperatures at which it began them before.
        band = start_band(asked, events)
        with benches.ready(chosen, workload.bring, meter, protocol_of(asked), band) as steps:
            if band is None and steps.band is not None:
                folder.event("start_temperature", low_c=steps.band.low_c, high_c=steps.band.high_c)
            bench = DeviceBench(steps, needs_energy=wanted, limits=request.limits)
            calibrated(steps, setting_of(bench.clusters, None), folder, progress, needed=wanted)
            study = shared or study_of(request, *study_place(asked, folder))
            every = REFERENCE_EVERY if every is None else every
            if joint:
                with reading(folder.path):
                    choosing = joint_bench(steps, bench, workload, request, events)
                choosing.others = study.trials
                beside = None
                if asked.get("sequential") is not False:
                    storage, label = study_place(asked, folder)
                    beside = study_of(
                        replace(request, workload=f"{request.workload} sequential"),
                        storage,
                        f"{label}-sequential",
                    )
                names = [cluster.name for cluster in bench.clusters]
                kept = KeptSchedules(choosing, partial(kept_choice, workload, names))
                with reading(folder.path):
                    joint_run = JointRun(
                        study, choosing, beside, kept, recorder(folder), progress, interrupted=interrupted,
                        blocks=blocks, reference_every=every, events=events,
                    )  # fmt: skip
                whole = joint_run.run()
                outcome = whole.outcome if whole else None
            else:
                with reading(folder.path):
                    search_run = CpuConfigRun(
                        study, bench, recorder(folder), progress, interrupted=interrupted,
                        blocks=blocks, reference_every=every, events=events,
                    )  # fmt: skip
                outcome = search_run.run()
            if outcome is not None and asked.get("per_operator"):
                planned = _per_operator(
                    request,
                    steps,
                    workload,
                    found_of(request, outcome),
                    blocks,
                    folder,
                    progress,
                    interrupted,
                    choosing if joint else None,
                )
                if planned is None and interrupted():
                    outcome = None
        if outcome is None:
            tell_interrupted(folder.path, name)
            return INTERRUPTED
        found = result(study, bench, outcome, searched=trials)
        if asked.get("per_operator"):
            found["per_operator"] = planned
        if joint and whole is not None:
            found["sequential"], found["placement"] = whole.sequential, whole.placement
            assert workload.pools is not None
            found["warnings"] = list(workload.pools.warnings)
            choosing.listen()
            points = plan_points(choosing, workload, found)
            found["plans"] = write_plans(folder, choosing, workload, asked, points)
        model, batch = (step.model, step.batch or DEFAULT_BATCH) if step else (None, None)
        found = named(found, folder=folder.path, model=model, batch=batch)
        folder.result(found)
    if found["best"] is None:
        raise _nothing(found_of(request, outcome), request, outcome, folder.path)
    if as_json:
        write_json(found)
    else:
        show(found, folder.path)
    if joint and not found["emulated"]:
        write_next("step", "--plan", folder.path / "plans" / "best.json")
    elif found["emulated"] or joint:
        write_next("report", folder.path)
    else:
        write_next("cpu-config", "apply", folder.path)
    return 0


def _nothing(
    found: Found, request: StudyRequest, outcome: Outcome, folder: Path
) -> NothingMeasuredError:
    """Why a search has no best."""
    count, hint = len(outcome.trials), f"see {folder}/events.jsonl"
    if found.figures:
        nearest = nearest_text(found, request.limits, [c.name for c in request.space.clusters])
        return NothingMeasuredError(
            f"none of {count} configurations keeps the limits: {nearest}", hint=hint
        )
    wrong = [t.message for t in outcome.trials if t.message]
    last = f"; the last said: {wrong[-1]}" if wrong else ""
    return NothingMeasuredError(
        f"none of {count} configurations gave a valid measurement{last}", hint=hint
    )


def _per_operator(
    request: StudyRequest,
    bench: StepBench,
    workload: DeviceWorkload,
    found: Found,
    blocks: int,
    folder: RunFolder,
    progress: LiveProgress,
    interrupted: Callable[[], bool],
    joint: JointBench | None,
) -> dict[str, Any] | None:
    """Plans, and measures the plan; None where it cannot be done, or was interrupted."""
    assert workload.graph is not None
    chosen, form = candidates(found), 0
    used = None
    if joint is not None and chosen:
        # A step has one form, whatever it goes through.
        form = joint.choose(chosen[0]).form
        chosen = [one for one in chosen if joint.choose(one).form == form]
        used = partial(_used, joint, forms_on_device(workload)[form])
    if not chosen:
        return None  # The run has no best; it ends by saying so.
    # The changes between configurations are measured as well.
    progress.phase("per operator", len(chosen) + 1 + 2 * blocks)
    done = 0
    record = recorder(folder)

    def told(kind: str, what: dict[str, Any], measured: Measured) -> None:
        nonlocal done
        done += 1
        record(kind, what, measured)
        progress.step(done, kind)

    graph = workload.pools.forms[form].graph if workload.pools else workload.graph
    planning = PlanRun(
        bench, workload.runners[form], graph, request.objective, request.limits, request.seed,
        blocks, told, interrupted, used,
    )  # fmt: skip
    try:
        return planning.run(chosen)
    except StableDeviceError as error:
        progress.notice(f"no plan per operator: {error.message}")
        return None


def _used(joint: JointBench, form: FormOnDevice, configuration: CpuConfiguration) -> dict[int, int]:
    return form.used(joint.choose(configuration))


def _check(asked: dict[str, Any]) -> None:
    """Refuses numbers that make no sense, before anything is looked for."""
    benches.number("--blocks", asked["blocks"], 0)
    benches.number("--reference-every", asked.get("reference_every"), 0)
    benches.number("--least-seconds", asked["least_seconds"], 0)
    benches.number("--start-temperature", asked["start_temperature"])
    benches.number("--seed", asked["seed"], 0)
    if (asked["seed"] or 0) > _LARGEST_SEED:
        raise UsageError(f"--seed is {asked['seed']}", hint=f"give one up to {_LARGEST_SEED}")
    if asked["study"] is not None and not asked["study"].strip():
        raise UsageError("--study is empty", hint="give a name, or leave it out")


def _request(asked: dict[str, Any], trials: int, chosen: Chosen) -> StudyRequest:
    objective = benches.one_of("--objective", asked["objective"] or "latency", OBJECTIVES)
    sampler = benches.one_of("--sampler", asked["sampler"] or "tpe", SAMPLERS)
    if trials < 1:
        raise UsageError(f"--trials is {trials}", hint="give a number from 1 on")
    space = _space(asked["space"], chosen)
    limits = benches.limits(
        asked["deadline"], asked["energy_budget"], asked["max_temperature"], asked["memory_limit"]
    )
    return StudyRequest(
        space=space,
        objective=objective,
        limits=limits,
        trials=trials,
        sampler=sampler,
        model=True if asked["model"] is None else asked["model"],
        seed=SEED if asked["seed"] is None else asked["seed"],
        workload=_workload_text(asked),
    )


def _space(name: str | None, chosen: Chosen) -> CpuSpace:
    """What the device can do and --space allows."""
    ranges = benches.ranges(name)
    try:
        return CpuSpace.of(chosen.info.clusters, ranges, clocks=chosen.info.rooted)
    except UsageError as error:
        if name is None:
            raise
        raise UsageError(f"--space {name}: {error.message}", hint=error.hint) from error


def _workload_text(asked: dict[str, Any]) -> str:
    """What is measured, for studies that are shared; runs count by their names, since hosts have them elsewhere."""
    step = asked.get("step")
    if step is not None:
        kind = {"joint": True} if asked.get("joint") else {}
        names = {
            key: sorted(Path(run).name for run in step[key])
            for key in ("runs", "gpu_runs")
            if step.get(key)
        }
        others = {key: value for key, value in step.items() if key != "gpu_runs"}
        return json.dumps({**others, **names, **kind})
    return json.dumps([asked["command"], asked["steps_from"]])


__all__ = ["run_search"]
