"""`autotune joint`: schedules, cores and clocks together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from autotune.cli.options import (
    Batch,
    Blocks,
    Classes,
    Deadline,
    Device,
    Emulate,
    EnergyBudget,
    InputShape,
    JointResume,
    Json,
    Layout,
    LeastSeconds,
    Logs,
    Lora,
    MaxTemperature,
    MemoryLimit,
    Meter,
    Model,
    Objective,
    Optimizer,
    Runs,
    Seed,
    Seq,
    Space,
    Ssh,
    StartTemperature,
    Storage,
    StudyName,
    Train,
    completion,
    of_the_model,
    run_path,
)
from autotune.cli.shared import with_wide
from autotune.jobs.requests import JOINT_TRIALS


@with_wide
def joint(
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
    gpu_run: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels", check=of_the_model),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Finished run for the device's GPU; its kernels may run there. May be repeated.",
        ),
    ] = None,
    gpu_memory: Annotated[
        Literal["copy", "map"] | None,  # MemoryKind; importing its room takes 0.5 s.
        typer.Option(
            help="How tensors get to the GPU: copy, or map (zero-copy where memory is unified). "
            "[default: the faster one]"
        ),
    ] = None,
    layout: Layout = None,
    device: Device = None,
    ssh: Ssh = None,
    emulate: Emulate = None,
    trials: Annotated[
        int | None, typer.Option(help=f"Steps to measure. [default: {JOINT_TRIALS}]")
    ] = None,
    kernel_trials: Annotated[
        int | None,
        typer.Option(
            help="Without --run: candidates of kernels to measure before the steps. [default: 512]"
        ),
    ] = None,
    deadline: Deadline = None,
    energy_budget: EnergyBudget = None,
    max_temperature: MaxTemperature = None,
    memory_limit: MemoryLimit = None,
    space: Space = None,
    meter: Meter = None,
    start_temperature: StartTemperature = None,
    least_seconds: LeastSeconds = None,
    blocks: Blocks = None,
    storage: Storage = None,
    study: StudyName = None,
    sequential: Annotated[
        bool | None,
        typer.Option(
            "--sequential/--no-sequential",
            help="Afterwards, search only cores and clocks, with each kernel's fastest schedule and as many steps, "
            "to report the gain of the joint search. [default: --sequential]",
        ),
    ] = None,
    per_operator: Annotated[
        bool | None,
        typer.Option(
            "--per-operator",
            help="Also plan a configuration for each operator, with schedules for it, and measure this plan.",
        ),
    ] = None,
    seed: Seed = None,
    logs: Logs = None,
    resume: JointResume = None,
    json: Json = False,
) -> int:
    """Finds the best schedules, cores, threads and clocks for an objective, together.

    Each --run has tuned the step's kernels, for one cluster or for all cores, and has kept the best few
    schedules of each kernel. Without --run, the kernels are tuned first, on this host or on the model. For
    each proposed configuration a model chooses the schedules. Then the whole step is measured, and the model
    learns from each call. With --gpu-run, each call runs on the CPU or on the GPU, whichever is better
    including data transfers. The CPU alone is measured too, for comparison. The run's folder has a plan for
    each point.

    \b
    Examples:
      autotune joint --model mobilenet_v2 --batch 8 --objective edp --emulate meizu-16t
      autotune joint --model mobilenet_v2 --batch 8 --run logs/2026-arm-cpu --objective pareto --emulate meizu-16t
      autotune joint --model lenet --batch 8 --run logs/2026-cpu-lenet --device local --meter none
      autotune joint --model mobilenet_v2 --batch 8 --run logs/2026-arm-cpu --gpu-run logs/2026-adreno
      autotune joint --resume logs/20260102T030405Z-joint-sm8150
    """
    from autotune.cli.search_commands.search_result import carry_out
    from autotune.errors import UsageError
    from autotune.jobs.requests import SearchRequest, StepRequest, requested_step

    step = requested_step(
        StepRequest(
            model or "", batch, classes, optimizer, input_shape, runs=tuple(map(str, run or ())),
            layout=layout, train=tuple(train or ()),
        ),
        seq,
        lora,
    )  # fmt: skip
    if resume is None and step is None:
        raise UsageError(
            "--model says which step is meant", hint="such as --model mobilenet_v2 --batch 8"
        )
    if gpu_run:
        if step is None:
            raise UsageError("--gpu-run goes with --model", hint="give --model")
        on_gpu = tuple(str(one.absolute()) for one in gpu_run)
        step = replace(step, gpu_runs=on_gpu, gpu_memory=gpu_memory)
    elif gpu_memory is not None:
        raise UsageError("--gpu-memory goes with --gpu-run", hint="give --gpu-run")
    if kernel_trials is not None and (resume is not None or (step and step.runs)):
        raise UsageError(
            "--kernel-trials is for kernels that are tuned first, and the run has some",
            hint="leave it out, or leave --run out",
        )
    request = SearchRequest(
        joint=True, objective=objective, step=step, device=device, ssh=tuple(ssh or ()),
        emulate=emulate, deadline=deadline, energy_budget=energy_budget,
        max_temperature=max_temperature, memory_limit=memory_limit, trials=trials, space=space,
        meter=meter, blocks=blocks, start_temperature=start_temperature,
        least_seconds=least_seconds, storage=storage, study=study, seed=seed,
        per_operator=per_operator, sequential=sequential, kernel_trials=kernel_trials,
    )  # fmt: skip
    return carry_out(request, logs, resume, as_json=json)
