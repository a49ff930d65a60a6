"""`autotune profile`: what each operator of a training step takes on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import completion
from autotune.cli.output import (
    Column,
    named,
    number,
    time_text,
    with_wide,
    write_json,
    write_next,
    write_table,
    write_text,
)
from autotune.cli.runs import run_path
from autotune.cli.search_options import Device, Json, Ssh
from autotune.cli.workload import (
    DEFAULT_BATCH,
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
    from autotune.measurement import Setting, StepRun

SCHEMA_VERSION = 1
_SECONDS, _INTERVAL_MS = 20.0, 10.0
_ROWS = 20


@with_wide
def profile(
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
            autocompletion=completion.profiles,
            metavar="PROFILE",
            help="Measure on a model of a device, in this process.",
        ),
    ] = None,
    cpus: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Cores, such as 4-7. [default: all, left to the system]"),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads. [default: one a core]")] = None,
    of: Annotated[
        Path | None,
        typer.Option(
            parser=run_path("cpu-config", "joint"),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Run of cpu-config whose --point is profiled.",
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(
            help="best, default, or a named point of the run that --of gives. [default: best]"
        ),
    ] = None,
    meter: Annotated[
        str | None,
        typer.Option(help="As in `autotune cpu-config`; none for times only. [default: auto]"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Steps are counted for this long at least.")
    ] = _SECONDS,
    interval_ms: Annotated[
        float, typer.Option(metavar="MS", help="Between samples.")
    ] = _INTERVAL_MS,
    start_temperature: Annotated[
        float | None, typer.Option(metavar="CELSIUS", help="As in `autotune cpu-config`.")
    ] = None,
    logs: Annotated[Path, typer.Option(help="Folder that the run's folder is made in.")] = Path(
        "logs"
    ),
    json: Json = False,
) -> int:
    """Shows energy, time, use of the cores, clocks, temperature and memory of each operator and role of a step.

    Samples of power are joined with the times of the calls by least squares, so that calls shorter than a sample
    are told apart over many steps, as far as they can be: what cannot is marked with ~.
    Another program than ours has to print when its calls began: see docs/measurement.md.

    \b
    Examples:
      autotune profile --model mobilenet_v2 --batch 8 --emulate jetson-tx2
      autotune profile --model mobilenet_v2 --batch 8 --run logs/20260102T030405Z-arm-cpu --cpus 4-7
      autotune profile --model alexnet --batch 16 --of logs/20260102T030405Z-cpu-config-sm8150 --point knee
    """
    from dataclasses import asdict, replace

    from autotune.cli import bench as benches
    from autotune.cli.device_workload import brought, given_command
    from autotune.cli.step_options import step_options
    from autotune.cli.step_records import at_most, calibrated
    from autotune.cli.tuning import LiveProgress, about_this
    from autotune.errors import NothingMeasuredError, UsageError
    from autotune.measurement import Protocol
    from autotune.records import RunFolder
    from autotune.studies.plans import named_calls, operators, roles

    benches.number("--seconds", seconds)
    benches.number("--interval-ms", interval_ms)
    benches.number("--start-temperature", start_temperature)
    if not seconds > 0 or not interval_ms >= 1:
        raise UsageError(
            f"--seconds {seconds:g} and --interval-ms {interval_ms:g}",
            hint="give seconds above 0, and an interval of 1 ms or more",
        )
    step = step_options(
        model, batch, classes, optimizer, input_shape, run, micro_batch, recompute, layout
    )
    if step is None and command is None:
        raise UsageError("--model, or --command and --steps-from, say what is profiled")
    given = given_command(step, command, steps_from, emulated=False)
    chosen = benches.choose(device, ssh or (), emulate)
    setting = _setting(chosen, cpus, threads, of, point)
    found_meter = benches.meter(chosen, meter or "auto", needed=False)
    protocol = replace(Protocol(), interval_s=interval_ms / 1e3, least_s=seconds, least_steps=10)
    request = {
        "profile": step.to_json() if step else command, "cpus": cpus, "threads": threads,
        "of": str(of) if of else None, "point": (point or "best") if of else None, "emulate": emulate,
        "seconds": seconds, "interval_ms": interval_ms, "meter": meter,
    }  # fmt: skip
    about = about_this(request, chosen.info.to_json() | {"name": chosen.info.serial})
    folder = RunFolder.create(logs, f"profile-{chosen.info.soc}", about)
    with (
        folder,
        LiveProgress() as progress,
        brought(step, given, chosen, progress, trace=True) as workload,
    ):
        progress.notice(f"run folder: {folder.path}")
        with benches.ready(
            chosen, workload.bring, found_meter, protocol, at_most(start_temperature)
        ) as bench:
            calibrated(bench, setting, folder, progress, needed=False)
            measured, joined = bench.profile(setting)
        if bench.meter is not None:
            # What the records' figures mean: a report reads the power over time from them.
            folder.event("meter", meter=asdict(bench.meter), settle_s=protocol.settle_s)
        for one in measured.rejected:
            folder.event(
                "rejected", status=one.status, message=one.message, raw=folder.raw(one.records)
            )
        for number, text in enumerate(measured.records):
            (folder.path / f"record-{number}.jsonl").write_text(text, encoding="utf-8")
        if measured.status != "ok":
            raise NothingMeasuredError(
                f"the step was not measured: {measured.message}", hint=f"see {folder.path}"
            )
        if joined is None:
            raise NothingMeasuredError(
                "the program printed no times of calls",
                hint="a line 'calls SECONDS MICROSECONDS ...' a step: see docs/measurement.md",
            )
        try:
            calls = named_calls(workload.graph, joined)
        except ValueError as error:
            raise NothingMeasuredError(f"the calls cannot be told: {error}") from error
        found = {
            "schema_version": SCHEMA_VERSION,
            "kind": "profile",
            "device": {**chosen.info.to_json(), "emulated": chosen.info.emulated},
            "emulated": bool(chosen.info.emulated),
            "meter": bench.meter.name if bench.meter else None,
            "cpus": list(setting.cpus) if setting.cpus else None,
            "threads": setting.threads,
            "khz": {
                cluster.name: khz
                for cluster, khz in zip(chosen.info.clusters, setting.khz, strict=True)
            },
            **_step(measured),
            "intervals": joined.intervals,
            "operators": operators(calls, joined),
            "roles": roles(calls, joined),
        }
        called, size = (step.model, step.batch or DEFAULT_BATCH) if step else (None, None)
        found = named(found, folder=folder.path, model=called, batch=size)
        folder.result(found)
    if json:
        write_json(found)
    else:
        show(found, folder.path)
    write_next("report", folder.path)
    return 0


def _setting(
    chosen: Chosen, cpus: str | None, threads: int | None, of: Path | None, point: str | None
) -> Setting:
    """The cores and clocks that options mean."""
    from autotune.cli.cpu_config_apply import point_of
    from autotune.devices import cpu_list
    from autotune.errors import UsageError
    from autotune.measurement import Setting
    from autotune.records import read_run
    from autotune.studies.bench import setting_of
    from autotune.studies.space import CpuConfiguration

    clusters = chosen.info.clusters
    if of is None and point is not None:
        raise UsageError("--point goes with --of", hint="give the run whose point is meant")
    point = "best" if point is None else point
    if of is not None:
        if cpus is not None or threads is not None:
            raise UsageError("--of gives cores and threads", hint="leave --cpus and --threads out")
        shown = point_of(read_run(of), point)
        if shown.get("clusters") is None:
            return setting_of(clusters, None)
        return setting_of(clusters, CpuConfiguration.from_json(shown, [c.name for c in clusters]))
    every = tuple(cpu for cluster in clusters for cpu in cluster.cpus)
    try:
        wanted = cpu_list(cpus) if cpus is not None else None
    except ValueError as error:
        raise UsageError(f"--cpus '{cpus}' is no list of cores", hint="such as 4-7") from error
    if wanted is not None and (not wanted or not set(wanted) <= set(every)):
        raise UsageError(
            f"--cpus '{cpus}': the device has cores {', '.join(map(str, sorted(every)))}"
        )
    if threads is not None and threads < 1:
        raise UsageError(f"--threads is {threads}", hint="give 1 or more")
    count = threads or len(wanted or every) or 1
    return Setting(wanted, (None,) * len(clusters), count)


def _step(measured: StepRun) -> dict[str, Any]:
    return {
        "step_s": measured.time_s,
        "steps": measured.count,
        "energy_j": measured.energy_j,
        "deviation_j": measured.deviation_j,
        "marks": list(measured.marks),
        "memory_bytes": measured.memory_bytes,
    }


def show(found: dict[str, Any], folder: Path) -> None:
    """Prints a profile: roles, then the calls that take most."""
    heads = (
        number("time"),
        number("share"),
        number("mJ"),
        number("+/-", rank=1),
        number("W", rank=2),
        number("cores busy", rank=3),
        number("MHz", rank=4),
        number("C", rank=5),
        number("MB live", rank=6),
    )
    write_table(
        (Column("operator", least=8), Column("role"), number("calls"), *heads),
        [
            (r["operator"], r["role"], str(r["calls"]), *_row(r))
            for r in sorted(found["roles"], key=lambda r: -r["time_s"])
        ],
    )
    print()
    longest = sorted(found["operators"], key=lambda r: -r["time_s"])[:_ROWS]
    write_table((Column("call", least=24), *heads), [(r["name"], *_row(r)) for r in longest])
    if len(found["operators"]) > _ROWS:
        write_text(f"{len(found['operators']) - _ROWS} shorter calls: see {folder}/result.json")
    joules = found["energy_j"]
    told = f", {joules:.4g} +/- {found['deviation_j']:.2g} J" if joules is not None else ""
    write_text(f"a step: {time_text(found['step_s'])}{told} (of {found['steps']})")
    if joules is not None:
        short = sum(not r["apart"] for r in found["operators"])
        if short:
            write_text(
                f"~: too short to tell apart: the power of {short} of {len(found['operators'])} calls is not known "
                f"within 15 % of the step's ({found['intervals']} samples); roles add them up"
            )
    for mark in found["marks"]:
        write_text(f"doubtful: {mark}")
    if found["emulated"]:
        write_text(f"{found['device']['emulated']}: times and joules are a model's")
    write_text(f"run folder: {folder}")


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    energy = row["energy_j"]
    mark = "" if row["apart"] else "~"
    return (
        time_text(row["time_s"]),
        f"{row['share']:.1%}",
        "-" if energy is None else f"{mark}{1e3 * energy:.4g}",
        "-" if energy is None else f"{1e3 * row['deviation_j']:.2g}",
        "-" if row["watts"] is None else f"{mark}{row['watts']:.3g}",
        f"{sum(row['busy'].values()):.2f}" if row["busy"] else "-",
        "/".join(f"{khz / 1e3:.0f}" for khz in row["khz"].values()) or "-",
        "-" if row["celsius"] is None else f"{row['celsius']:.1f}",
        "-" if row["live_bytes"] is None else f"{row['live_bytes'] / 1e6:.4g}",
    )


__all__ = ["profile"]
