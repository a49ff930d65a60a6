"""`autotune cpu-config`: finds the cores and clocks to train on."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import (
    Batch,
    Blocks,
    Classes,
    Command,
    Deadline,
    Device,
    Emulate,
    EnergyBudget,
    InputShape,
    Json,
    Layout,
    LeastSeconds,
    Logs,
    Lora,
    MaxTemperature,
    MemoryLimit,
    Meter,
    MicroBatch,
    Model,
    Objective,
    Optimizer,
    Recompute,
    Resume,
    Runs,
    Seed,
    Seq,
    Space,
    Ssh,
    StartTemperature,
    StepsFrom,
    Storage,
    StudyName,
    Train,
    completion,
)
from autotune.cli.shared import with_wide
from autotune.jobs.requests import LARGEST, SEARCH_TRIALS


@with_wide
def search(
    context: typer.Context,
    objective: Objective = None,
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
    emulate: Emulate = None,
    deadline: Deadline = None,
    energy_budget: EnergyBudget = None,
    max_temperature: MaxTemperature = None,
    memory_limit: MemoryLimit = None,
    trials: Annotated[
        int | None, typer.Option(help=f"Configurations to measure. [default: {SEARCH_TRIALS}]")
    ] = None,
    exhaustive: Annotated[
        bool | None,
        typer.Option(
            "--exhaustive",
            help=f"After the search, measure the rest of a space of at most {LARGEST} configurations, and report "
            "how far the search was from the optimum.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.samplers,
            help="Sampler that proposes every fifth configuration, beside the models: tpe, nsga2 or random. "
            "grid: measure all in order, without models. [default: tpe]",
        ),
    ] = None,
    model_start: Annotated[
        bool | None,
        typer.Option(
            "--model-start/--no-model-start",
            help="Let models that predict time and power propose configurations, after a few probes. "
            "[default: --model-start]",
        ),
    ] = None,
    space: Space = None,
    meter: Meter = None,
    blocks: Blocks = None,
    reference_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="After every N configurations, measure the same one again, to detect drift; 0 for never. "
            "[default: 8]",
        ),
    ] = None,
    least_seconds: LeastSeconds = None,
    start_temperature: StartTemperature = None,
    per_operator: Annotated[
        bool | None,
        typer.Option(
            "--per-operator",
            help="After the search, plan a configuration for each phase and each operator of --model's step, and "
            "measure the plan per operator.",
        ),
    ] = None,
    storage: Storage = None,
    study: StudyName = None,
    seed: Seed = None,
    logs: Logs = None,
    resume: Resume = None,
    json: Json = False,
) -> int:
    """Finds the best cores, threads and clocks for an objective, by measuring on a device.

    A step of --model is compiled with the kernels of --run, and runs on the device without TVM. Steps of
    another program are timed by the lines that it prints. Energy is measured above idle power. Without root,
    only cores and threads are chosen; clocks are observed.

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
    from autotune.cli.search_commands.search_result import carry_out
    from autotune.jobs.requests import SearchRequest, StepRequest, requested_step

    step = requested_step(
        StepRequest(
            model or "", batch, classes, optimizer, input_shape, runs=tuple(map(str, run or ())),
            micro_batch=micro_batch, recompute=recompute, layout=layout, train=tuple(train or ()),
        ),
        seq,
        lora,
    )  # fmt: skip
    request = SearchRequest(
        objective=objective, step=step, command=command, steps_from=steps_from, device=device,
        ssh=tuple(ssh or ()), emulate=emulate, deadline=deadline, energy_budget=energy_budget,
        max_temperature=max_temperature, memory_limit=memory_limit, trials=trials, sampler=sampler,
        model=model_start, space=space, meter=meter, blocks=blocks,
        start_temperature=start_temperature, least_seconds=least_seconds, storage=storage,
        study=study, seed=seed, per_operator=per_operator, exhaustive=exhaustive,
        reference_every=reference_every,
    )  # fmt: skip
    return carry_out(request, logs, resume, as_json=json)


__all__ = ["search"]
