"""`autotune profile`: the cost of each operator of a training step on a device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.options import (
    Batch,
    Classes,
    Command,
    Device,
    InputShape,
    Json,
    Layout,
    Lora,
    MicroBatch,
    Model,
    Optimizer,
    Recompute,
    Runs,
    Seq,
    Ssh,
    StepsFrom,
    Train,
    completion,
    run_path,
)
from autotune.cli.shared import (
    Column,
    number,
    time_text,
    with_wide,
    write_json,
    write_next,
    write_table,
    write_text,
)

_ROWS = 20


def _has_point(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run without the point whose cores and clocks are taken."""
    from autotune.jobs.requests import point_of
    from autotune.records import read_run

    point_of(read_run(run), options["point"] or "best")


@with_wide
def profile(
    model: Model = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    seq: Seq = None,
    lora: Lora = None,
    train: Train = None,
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
    threads: Annotated[int | None, typer.Option(help="Threads. [default: one per core]")] = None,
    of: Annotated[
        Path | None,
        typer.Option(
            parser=run_path("cpu-config", "joint", check=_has_point),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Run of cpu-config that --point is taken from.",
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
        typer.Option(
            autocompletion=completion.meters,
            help="As in `autotune cpu-config`; none for times only. [default: auto]",
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(help="Minimum duration of the measurement.")] = 20.0,
    interval_ms: Annotated[float, typer.Option(metavar="MS", help="Time between samples.")] = 10.0,
    start_temperature: Annotated[
        float | None, typer.Option(metavar="CELSIUS", help="As in `autotune cpu-config`.")
    ] = None,
    logs: Annotated[Path, typer.Option(help="Folder that the run's folder is made in.")] = Path(
        "logs"
    ),
    json: Json = False,
) -> int:
    """Shows energy, time, use of the cores, clocks, temperature and memory of each operator and role of a step.

    Power samples are assigned to calls by least squares over many steps. So calls that are shorter than a
    sample can be separated; those that cannot are marked with ~. A program of your own has to print when its
    calls begin: see docs/measurement.md.

    \b
    Examples:
      autotune profile --model mobilenet_v2 --batch 8 --emulate jetson-tx2
      autotune profile --model mobilenet_v2 --batch 8 --run logs/20260102T030405Z-arm-cpu --cpus 4-7
      autotune profile --model alexnet --batch 16 --of logs/20260102T030405Z-cpu-config-sm8150 --point knee
    """
    from autotune.jobs.requests import StepRequest, requested_step
    from autotune.jobs.steps import ProfileRequest
    from autotune.jobs.steps import profile as profiled

    step = requested_step(
        StepRequest(
            model or "", batch, classes, optimizer, input_shape, runs=tuple(map(str, run or ())),
            micro_batch=micro_batch, recompute=recompute, layout=layout, train=tuple(train or ()),
        ),
        seq,
        lora,
    )  # fmt: skip
    done = profiled(
        ProfileRequest(
            step, command, steps_from, device, tuple(ssh or ()), emulate, cpus, threads, of, point,
            meter, seconds, interval_ms, start_temperature,
        ),
        logs,
    )  # fmt: skip
    if json:
        write_json(done.content)
    else:
        show(done.content, done.path)
    write_next("report", done.path)
    return 0


def show(found: dict[str, Any], folder: Path) -> None:
    """Prints a profile: roles, then the longest calls."""
    from autotune.studies.space import emulated_text

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
    energy = f", {joules:.4g} +/- {found['deviation_j']:.2g} J" if joules is not None else ""
    write_text(f"a step: {time_text(found['step_s'])}{energy} ({found['steps']} steps)")
    if joules is not None:
        short = sum(not r["apart"] for r in found["operators"])
        if short:
            write_text(
                f"~: too short to separate: the power of {short} of {len(found['operators'])} calls is not known "
                f"within 15 % of the step's ({found['intervals']} samples); roles add them up"
            )
    for mark in found["marks"]:
        write_text(f"doubtful: {mark}")
    if found["emulated"]:
        write_text(emulated_text(found["device"]["emulated"]))
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
