"""`autotune cpu-config`: which cores and clocks to train on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
TRIALS, BLOCKS, SEED = 40, 5, 1
LARGEST = 500
"""Configurations of a space that is measured as a whole."""


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
        int | None, typer.Option(help=f"Configurations to measure. [default: {TRIALS}]")
    ] = None,
    exhaustive: Annotated[
        bool | None,
        typer.Option(
            "--exhaustive",
            help=f"Then measure the rest of a space of up to {LARGEST}, and tell how far the search was from "
            "the optimum.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Who proposes what the models do not, every fifth configuration after the probes: tpe, nsga2, "
            "random; or grid: all, in order. [default: tpe]"
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
            help=f"How often the best and the system's own choice are measured again. [default: {BLOCKS}]"
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
            help="A run begins at this temperature at most. [default: from 8 below to 2 above what it is at first]",
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
    seed: Annotated[int | None, typer.Option(help=f"Seed of the search. [default: {SEED}]")] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Folder that the run's folder is made in. [default: logs]")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Go on with a run; only --trials may change, and --storage tells a password again.",
        ),
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
    from autotune.cli.cpu_config_search import run_search
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
    return run_search(asked, trials, logs, resume, as_json=json)


__all__ = ["search"]
