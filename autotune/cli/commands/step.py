"""`autotune step`: runs training steps with tuned kernels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.options import (
    Batch,
    Classes,
    Device,
    InputShape,
    Layout,
    Lora,
    MicroBatch,
    Optimizer,
    Recompute,
    Seq,
    Ssh,
    Train,
    completion,
    of_the_model,
    plan_path,
    run_path,
)
from autotune.cli.shared import rate_text, time_text, with_wide, write_next


@with_wide
def step(
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=completion.models,
            help="Model, see `autotune models`; or a PyTorch module's file.py:factory or package.module:factory.",
            show_default=False,
        ),
    ] = None,
    batch: Batch = None,
    classes: Classes = None,
    optimizer: Optimizer = None,
    input_shape: InputShape = None,
    seq: Seq = None,
    lora: Lora = None,
    train: Train = None,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            parser=run_path("kernels", check=of_the_model),
            autocompletion=completion.runs,
            metavar="FOLDER",
            help="Folder of a run with tuned kernels. May be repeated.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps to run; the first 3 are not timed. [default: 20]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="MNIST files, CIFAR files (binary version), .npz with inputs and labels; or .txt or .jsonl for a "
            "causal language model. At most 1 GiB is loaded, spread over the file. [default: generated]"
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The tokenizer.json for a text. [default: that in the folder of hf:FOLDER]",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of parameters, data and dropout.")] = 1,
    micro_batch: MicroBatch = None,
    recompute: Recompute = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Choose the fastest micro-batch and recomputation whose peak memory fits, such as 1GB.",
        ),
    ] = None,
    layout: Layout = None,
    cache_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Compute the frozen layers once for each sample, and keep their results in this file.",
        ),
    ] = None,
    save_adapter: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the trained adapter of peft here: adapter_model.safetensors and adapter_config.json.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            parser=plan_path(),
            autocompletion=completion.plans,
            metavar="FILE",
            help="Instead of --model: measure this plan of `autotune joint` on its device. --run then says where "
            "the plan's runs are, if they were moved.",
        ),
    ] = None,
    device: Device = None,
    ssh: Ssh = None,
    least_seconds: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Minimum duration of a measurement of a --plan."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Trains for some steps on this machine; reports loss, time, samples a second and peak memory.

    The output tells how many kernels are not tuned by any --run. Those that are element-wise kernels or
    reductions use a schedule that needs no search (rule `streaming`); the others have TVM's default schedule.
    With --plan, the step that a joint search planned is measured on its device, interleaved with the default
    cores and clocks.

    \b
    Examples:
      autotune step --model lenet --batch 4 --run logs/20260102T030405Z-cpu-lenet
      autotune step --model alexnet --batch 16 --memory-limit 500MB --run logs/20260102T030405Z-cpu-alexnet
      autotune step --plan logs/20260102T030405Z-joint-sm8150/plans/best.json
      autotune step --model net.py:make --input-shape 3x32x32 --data cifar-10-batches-bin --steps 200 --json
      autotune step --model net.py:make --train last:1 --train frozen:eval --cache-features net.features
    """
    from autotune.cli.shared import write_json
    from autotune.errors import INTERRUPTED, UsageError
    from autotune.jobs.requests import StepRequest, requested_step
    from autotune.jobs.steps import TrainingRequest
    from autotune.jobs.steps import train as trained

    if plan is not None:
        from autotune.cli.commands.planned_step import show_plan

        same = (
            model,
            batch,
            classes,
            optimizer,
            input_shape,
            micro_batch,
            recompute,
            layout,
            train,
            seq,
            lora,
        )
        options = (steps, data, tokenizer, memory_limit, cache_features, save_adapter)
        if any(other is not None for other in (*same, *options)):
            raise UsageError(
                "--plan says which step is meant",
                hint="with it, give only --run, --device or --ssh",
            )
        return show_plan(plan, run or (), device, ssh or (), least_seconds, as_json=json)
    if not model:
        raise UsageError("--model or --plan says which step is meant", hint="such as --model lenet")
    if device is not None or ssh or least_seconds is not None:
        raise UsageError(
            "--device, --ssh and --least-seconds go with --plan",
            hint="`autotune profile` and `autotune cpu-config` measure steps of a model on devices",
        )
    wanted = requested_step(
        StepRequest(
            model, batch, classes, optimizer, input_shape, runs=tuple(map(str, run or ())),
            micro_batch=micro_batch, recompute=recompute, layout=layout, train=tuple(train or ()),
        ),
        seq,
        lora,
    )  # fmt: skip
    assert wanted is not None
    done = trained(
        TrainingRequest(
            wanted, steps, data, seed, memory_limit, cache_features, tokenizer, save_adapter
        )
    )
    if json:
        write_json(done.content)
    else:
        _show(done.content)
    if run and not done.content["never_tuned_kernels"]:
        write_next("breakdown", run[0])
    else:
        write_next(*shlex.split(done.content["tune_command"])[1:])
    return INTERRUPTED if done.interrupted else 0


def _show(result: dict[str, Any]) -> None:
    losses, step_ms = result["losses"], result["step_ms"]
    if not losses:
        return
    form = f"batch {result['batch']}"
    if result["micro_batch"] != result["batch"]:
        form += f" in micro-batches of {result['micro_batch']}"
    if result["recomputed_kernels"]:
        form += f", {result['recomputed_kernels']} kernels run again for their activations"
    print(f"{result['model']}, {form}, {result['optimizer']}, on {result['device']['name']}")
    never, kept = len(result["never_tuned_kernels"]), len(result["kept_default_kernels"])
    if never:
        print(
            f"{never} of {result['kernels']} kernels were never tuned, and have a schedule without a search"
        )
        print(f"  tune them with: {result['tune_command']}")
    if kept:
        untried = len(result["untried_kernels"])
        why = [f"{kept - untried} tried, nothing faster"] if kept > untried else []
        why += [f"{untried} without a trial"] if untried else []
        print(
            f"{kept} of {result['kernels']} kernels keep TVM's default schedule: {'; '.join(why)}"
        )
    shown = [
        f"{loss:.6f}" if loss is not None else "not finite" for loss in (losses[0], losses[-1])
    ]
    print(f"loss         {shown[0]} -> {shown[1]} in {len(losses)} steps")
    if (perplexity := result.get("perplexity")) is not None:
        print(f"perplexity   {perplexity:.4g}, over the last tenth of the steps")
    if step_ms is not None:
        print(
            f"time a step  {time_text(step_ms / 1e3)} (median of {len(losses) - result['warm_up_steps']})"
        )
        print(f"samples/s    {rate_text(result['samples_per_s'])}")
        if (tokens := result.get("tokens_per_s")) is not None:
            print(f"tokens/s     {rate_text(tokens)}")
        prepare = time_text(result["prepare_ms"] / 1e3)
        print(f"data         {prepare} a step to prepare, in parallel with the step")
    if (features := result["features"]) is not None:
        took = features["batch_ms"]
        new = "" if took is None else f"; a batch of new ones takes {time_text(took / 1e3)}"
        print(f"features     of {features['samples']} samples are kept{new}")
    if (adapter := result["adapter"]) is not None:
        print(f"adapter      {adapter}")
    peak, predicted = result["peak_bytes"], result["predicted_peak_bytes"]
    print(f"peak memory  {peak / 1e6:.4g} MB (predicted {predicted / 1e6:.4g} MB)")
