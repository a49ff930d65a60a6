"""`autotune cpu-config`: which cores and clocks to train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from autotune.cli.workload import (
    Batch,
    Classes,
    Command,
    InputShape,
    Layout,
    MicroBatch,
    Model,
    Optimizer,
    Recompute,
    Runs,
    StepsFrom,
)

if TYPE_CHECKING:
    from autotune.cli.bench import Chosen
    from autotune.cli.device_workload import DeviceWorkload
    from autotune.cli.tuning import LiveProgress
    from autotune.measurement.step_bench import StepBench
    from autotune.records import RunFolder
    from autotune.studies.bench import Measured
    from autotune.studies.study import Study, StudyRequest, StudyTrial

Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="SERIAL", help="Device, as `autotune devices` lists it; or local."
    ),
]
Ssh = Annotated[
    list[str] | None,
    typer.Option("--ssh", metavar="USER@HOST", help="A board reached by ssh; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_OBJECTIVES = "latency, energy, edp or pareto"
_Word = TypeVar("_Word", bound=str)
_TRIALS, _BLOCKS, _SEED = 40, 5, 1
_STUDY = "cpu-config"
_LARGEST_SEED = 2**32 - 1
"""Optuna's samplers draw by NumPy's older generator."""
_LARGEST = 500
"""Configurations that are measured one and all."""


def search(
    context: typer.Context,
    objective: Annotated[
        str | None, typer.Option(help=f"What is to be small: {_OBJECTIVES}. [default: latency]")
    ] = None,
    model: Model = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    run: Runs = None,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    layout: Layout = None,
    command: Command = None,
    steps_from: StepsFrom = None,
    device: Device = None,
    ssh: Ssh = None,
    emulate: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="Measure on a model of a device, in this process; see `autotune devices emulate --list`.",
        ),
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="Longest step, such as 30s or 800ms.")
    ] = None,
    energy_budget: Annotated[
        str | None, typer.Option(metavar="ENERGY", help="Most joules of a step, such as 5J.")
    ] = None,
    max_temperature: Annotated[
        float | None, typer.Option(metavar="CELSIUS", help="Highest temperature of the body.")
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory of the program, such as 1GB.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help=f"Configurations to measure. [default: {_TRIALS}]")
    ] = None,
    exhaustive: Annotated[
        bool | None,
        typer.Option(
            "--exhaustive",
            help=f"Then measure the rest of a space of up to {_LARGEST}, and tell how far the search was from "
            "the optimum.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Optuna's part: tpe, nsga2, random; or grid, all of them. [default: tpe]"
        ),
    ] = None,
    model_start: Annotated[
        bool | None,
        typer.Option(
            "--model-start/--no-model-start",
            help="Begin with probes, and let models of time and power lead. [default: they do]",
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            help="Cores and clocks to choose among: every, phone, unrooted, coarse, or a TOML file. "
            "[default: every]"
        ),
    ] = None,
    meter: Annotated[
        str | None,
        typer.Option(
            help="auto, none, odpm, hwmon, iio, rapl, battery, nvml, or csv:SOURCE: a file, a FIFO or "
            "tcp://HOST:PORT that gives lines of seconds,watts. [default: auto]"
        ),
    ] = None,
    blocks: Annotated[
        int | None,
        typer.Option(
            help=f"How often the best and the system's own choice are measured again. [default: {_BLOCKS}]"
        ),
    ] = None,
    reference_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Every N configurations one is measured again, which tells drift; 0: never. [default: 8]",
        ),
    ] = None,
    least_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Steps of a run are counted for this long at least. [default: 5]",
        ),
    ] = None,
    start_temperature: Annotated[
        float | None,
        typer.Option(
            metavar="CELSIUS",
            help="A run begins at this temperature at most. [default: 2 above what it is at first]",
        ),
    ] = None,
    per_operator: Annotated[
        bool | None,
        typer.Option(
            "--per-operator",
            help="Then plan a configuration for each phase and operator of --model's step, and measure it.",
        ),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where several processes share the study: journal:FILE, postgresql+psycopg://... "
            "[default: SQLite in the run's folder]",
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option(metavar="NAME", help="The study's name in a shared --storage.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help=f"Seed of the search. [default: {_SEED}]")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Folder that the run's folder is made in. [default: logs]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Go on with a run; only --trials may change."),
    ] = None,
    json: Json = False,
) -> int:
    """Finds the cores, threads and clocks that suit an objective, by measuring on a device.

    A step of --model is compiled for the device with the kernels of --run, brought there and run without TVM.
    Another program's steps are timed by the lines that it prints. Energy is the power above the idle device's.
    Without root, cores and threads are chosen and clocks are only observed.

    \b
    Examples:
      autotune cpu-config --objective energy --model mobilenet_v2 --batch 8 --run logs/20260102T030405Z-arm-cpu
      autotune cpu-config --objective energy --command './runTrainDemo.out MnistTrain' --steps-from 'iter'
      autotune cpu-config --objective energy --deadline 30s --emulate meizu-16t
      autotune cpu-config --resume logs/20260102T030405Z-cpu-config-sm8150
      autotune cpu-config apply logs/20260102T030405Z-cpu-config-sm8150
    """
    if context.invoked_subcommand is not None:
        return 0
    from autotune.cli.device_workload import step_options

    step = step_options(
        model, batch, classes, optimizer, input_shape, run, micro_batch, recompute, layout
    )
    asked = {
        "objective": objective, "step": step.to_json() if step else None,
        "command": command, "steps_from": steps_from, "device": device,
        "ssh": ssh, "emulate": emulate, "deadline": deadline, "energy_budget": energy_budget,
        "max_temperature": max_temperature, "memory_limit": memory_limit, "sampler": sampler,
        "model": model_start, "space": str(space) if space else None, "meter": meter, "blocks": blocks,
        "start_temperature": start_temperature, "least_seconds": least_seconds, "storage": storage,
        "study": study, "seed": seed, "per_operator": per_operator,
        "exhaustive": exhaustive, "reference_every": reference_every,
    }  # fmt: skip
    return _search(asked, trials, logs, resume, as_json=json)


def _search(
    asked: dict[str, Any],
    trials: int | None,
    logs: Path | None,
    resume: Path | None,
    *,
    as_json: bool,
) -> int:
    from dataclasses import replace

    from autotune.cli import bench as benches
    from autotune.cli.cpu_config_table import show
    from autotune.cli.device_workload import StepOptions, brought, given_command
    from autotune.cli.tuning import LiveProgress, about_this, stop_on_interrupt
    from autotune.errors import (
        INTERRUPTED,
        NothingMeasuredError,
        StableDeviceError,
        UsageError,
    )
    from autotune.measurement.step_run import Protocol
    from autotune.records import RunFolder, read_run
    from autotune.studies.cpu_config import CpuConfigRun
    from autotune.studies.device_bench import DeviceBench, setting_of
    from autotune.studies.objective import needs_energy
    from autotune.studies.repeats import REFERENCE_EVERY
    from autotune.studies.result import result
    from autotune.studies.storage import default_url, open_storage
    from autotune.studies.study import study_of

    events: tuple[dict[str, Any], ...] = ()
    if resume is not None:
        if logs is not None or any(value is not None for value in asked.values()):
            raise UsageError(
                "--resume goes on with the run as it was asked for",
                hint="give only --trials beside it, to measure more",
            )
        earlier = read_run(resume)
        asked, events = earlier.about.get("request", {}), earlier.events
        if "objective" not in asked:
            raise UsageError(f"{resume} is no run of cpu-config")
        trials = asked["trials"] if trials is None else trials
    trials = _TRIALS if trials is None else trials
    _check(asked)
    chosen = benches.choose(asked["device"], asked["ssh"] or (), asked["emulate"])
    request = _request(asked, trials, chosen)
    if asked.get("exhaustive"):
        size = request.space.size
        if size > _LARGEST:
            raise UsageError(
                f"--exhaustive: the space has {size} configurations, and {_LARGEST} are measured at most",
                hint="give a smaller --space",
            )
        request = replace(request, trials=size)
    step = StepOptions.from_json(asked["step"]) if asked.get("step") else None
    command = given_command(
        step, asked["command"], asked["steps_from"], emulated=asked["emulate"] is not None
    )
    if asked.get("per_operator") and step is None:
        raise UsageError(
            "--per-operator needs --model: another program does not go through settings",
            hint="`autotune profile --command` tells what its calls take",
        )
    wanted = needs_energy(request.objective, request.limits)
    meter = benches.meter(chosen, asked["meter"] or "auto", needed=wanted)
    about = about_this(
        {**asked, "trials": trials}, chosen.info.to_json() | {"name": chosen.info.serial}
    )
    # A study that others share is refused before anything is made or measured.
    shared = _shared_study(asked, request)
    folder = (
        RunFolder.reopen(resume)
        if resume is not None
        else RunFolder.create(logs or Path("logs"), f"cpu-config-{slug(chosen.info.soc)}", about)
    )
    least = asked["least_seconds"]
    protocol = Protocol() if least is None else replace(Protocol(), least_s=least)
    blocks = _BLOCKS if asked["blocks"] is None else asked["blocks"]
    every = asked.get("reference_every")
    with (
        folder,
        LiveProgress() as progress,
        stop_on_interrupt(folder.path, "cpu-config") as interrupted,
        brought(step, command, chosen, progress) as workload,
    ):
        progress.notice(f"run folder: {folder.path}")
        if chosen.info.emulated:
            progress.notice(f"{chosen.info.emulated}: times and joules are a model's")
        if not chosen.info.rooted:
            progress.notice("no root: clocks are left to the system, and only observed")
        # A run that goes on begins its measurements at the temperature at which it began them before.
        start_c = asked["start_temperature"]
        if start_c is None:
            start_c = next(
                (e["celsius"] for e in events if e["event"] == "start_temperature"), None
            )
        with benches.ready(chosen, workload.bring, meter, protocol, start_c) as steps:
            if start_c is None and steps.start_c is not None:
                folder.event("start_temperature", celsius=steps.start_c)
            bench = DeviceBench(steps, needs_energy=wanted)
            calibration, failure = None, ""
            try:
                calibration = steps.calibrate(setting_of(bench.clusters, None))
            except StableDeviceError as error:
                failure = error.message
                if wanted:
                    raise
                steps.meter = None
                progress.notice(f"no joules are measured: {failure}")
            finally:
                if steps.calibration_records:
                    folder.event(
                        "calibration",
                        why=calibration.why if calibration else failure,
                        scale=calibration.scale if calibration else None,
                        raw=folder.raw(steps.calibration_records),
                    )
            study = shared or study_of(
                request, open_storage(default_url(folder.path)), asked["study"] or _STUDY
            )
            run = CpuConfigRun(
                study, bench, _recorder(folder), progress, interrupted=interrupted, blocks=blocks,
                reference_every=REFERENCE_EVERY if every is None else every, events=events,
            )  # fmt: skip
            outcome = run.run()
            if outcome is not None and asked.get("per_operator"):
                planned = _per_operator(
                    request, steps, workload, outcome.trials, blocks, folder, progress, interrupted
                )
                if planned is None and interrupted():
                    return INTERRUPTED
        if outcome is None:
            return INTERRUPTED
        found = result(study, bench, outcome, searched=trials)
        if asked.get("per_operator"):
            found["per_operator"] = planned
        folder.result(found)
    if found["best"] is None:
        wrong = [t.message for t in outcome.trials if t.message]
        raise NothingMeasuredError(
            f"none of {found['n_measured']} configurations gave a valid measurement that keeps the limits"
            + (f"; the last said: {wrong[-1]}" if wrong else ""),
            hint=f"see {folder.path}/events.jsonl",
        )
    show(found, folder.path, as_json=as_json)
    return 0


def _per_operator(
    request: StudyRequest,
    bench: StepBench,
    workload: DeviceWorkload,
    trials: Sequence[StudyTrial],
    blocks: int,
    folder: RunFolder,
    progress: LiveProgress,
    interrupted: Callable[[], bool],
) -> dict[str, Any] | None:
    """Plans, and measures the plan; None where it cannot be done, or was interrupted."""
    from autotune.errors import StableDeviceError
    from autotune.measurement.step_run import StepRun
    from autotune.studies.device_bench import DeviceBench
    from autotune.studies.per_operator import PlanRun, candidates

    assert workload.runner is not None
    assert workload.graph is not None
    chosen = candidates(request.objective, request.limits, trials)
    progress.phase("per operator", len(chosen) + 2 * blocks)
    done = 0
    record = _recorder(folder)
    measured = DeviceBench(bench, needs_energy=False)

    def told(kind: str, what: dict[str, Any], run: StepRun) -> None:
        nonlocal done
        done += 1
        record(kind, what, measured.measured(run))
        progress.step(done, kind)

    planning = PlanRun(
        bench, workload.runner, workload.graph, request.objective, request.limits, request.seed,
        blocks, told, interrupted,
    )  # fmt: skip
    try:
        return planning.run(chosen)
    except StableDeviceError as error:
        progress.notice(f"no plan per operator: {error.message}")
        return None


def _check(asked: dict[str, Any]) -> None:
    """Refuses numbers that make no sense, before anything is looked for."""
    from autotune.cli.bench import number
    from autotune.errors import UsageError

    number("--blocks", asked["blocks"], 0)
    number("--reference-every", asked.get("reference_every"), 0)
    number("--least-seconds", asked["least_seconds"], 0)
    number("--start-temperature", asked["start_temperature"])
    number("--seed", asked["seed"], 0)
    if (asked["seed"] or 0) > _LARGEST_SEED:
        raise UsageError(f"--seed is {asked['seed']}", hint=f"give one up to {_LARGEST_SEED}")
    if asked["study"] is not None and not asked["study"].strip():
        raise UsageError("--study is empty", hint="give a name, or leave it out")


def _shared_study(asked: dict[str, Any], request: StudyRequest) -> Study | None:
    """The study in --storage; None where it is kept in the run's folder."""
    from autotune.studies.storage import open_storage
    from autotune.studies.study import study_of

    if asked["storage"] is None:
        return None
    return study_of(request, open_storage(asked["storage"]), asked["study"] or _STUDY)


def _request(asked: dict[str, Any], trials: int, chosen: Chosen) -> StudyRequest:
    from autotune.cli import bench as benches
    from autotune.errors import UsageError
    from autotune.studies.objective import OBJECTIVES
    from autotune.studies.space import CpuSpace
    from autotune.studies.study import SAMPLERS, StudyRequest

    objective = one_of("--objective", asked["objective"] or "latency", OBJECTIVES)
    sampler = one_of("--sampler", asked["sampler"] or "tpe", SAMPLERS)
    if trials < 1:
        raise UsageError(f"--trials is {trials}", hint="give a number from 1 on")
    ranges = benches.ranges(asked["space"])
    limits = benches.limits(
        asked["deadline"], asked["energy_budget"], asked["max_temperature"], asked["memory_limit"]
    )
    return StudyRequest(
        space=CpuSpace.of(chosen.info.clusters, ranges, clocks=chosen.info.rooted),
        objective=objective,
        limits=limits,
        trials=trials,
        sampler=sampler,
        model=True if asked["model"] is None else asked["model"],
        seed=_SEED if asked["seed"] is None else asked["seed"],
        workload=_workload_text(asked),
    )


def _workload_text(asked: dict[str, Any]) -> str:
    """What is measured, for studies that are shared; runs count by their names, since hosts have them elsewhere."""
    import json

    step = asked.get("step")
    if step is not None:
        return json.dumps({**step, "runs": sorted(Path(run).name for run in step["runs"])})
    return json.dumps([asked["command"], asked["steps_from"]])


def one_of(option: str, value: str, known: Sequence[_Word]) -> _Word:
    """The one of the known words that an option gives.

    Raises:
        UsageError: It is none of them.
    """
    from autotune.errors import UsageError

    for word in known:
        if word == value:
            return word
    raise UsageError(f"{option} '{value}' is not known", hint=f"one of {', '.join(known)}")


def _recorder(folder: RunFolder) -> Callable[[str, dict[str, Any], Measured | None], None]:
    """Writes each measurement, or what follows from some, as an event, and its raw records beside."""

    def record(kind: str, what: dict[str, Any], measured: Measured | None) -> None:
        if measured is None:
            folder.event(kind, **what)
            return
        told = dict(measured.raw or {})
        # Runs that do not count come first, as they were measured.
        told["rejected"] = [
            {
                **{k: v for k, v in one.items() if k != "records"},
                "raw": folder.raw(one["records"]),
            }
            for one in told.get("rejected", ())
        ]
        name = folder.raw(told.pop("records", ()))
        figures = measured.figures
        folder.event(
            kind,
            **what,
            status=measured.status,
            message=measured.message,
            figures=vars(figures) if figures else None,
            raw=name,
            **told,
        )

    return record


def slug(name: str) -> str:
    """A name as a folder may have it."""
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


__all__ = ["one_of", "search", "slug"]
