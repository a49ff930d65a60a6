"""Options that define the training step, shared by the commands that tune and run one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from autotune.cli.options import completion
from autotune.cli.options.latest import run_path
from autotune.jobs.requests import DEFAULT_BATCH

Model = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.models,
        help="Model whose tuned step is measured, see `autotune models`; or a PyTorch module's factory.",
    ),
]


def of_the_model(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run that has tuned another model than the one that is named."""
    from autotune.errors import UsageError
    from autotune.records import read_json

    about = read_json(run / "run.json")  # The whole run was read before.
    step, named = about.get("step"), options.get("model")
    tuned = step.get("model") if isinstance(step, dict) else about["request"]["workload"]
    if named and _model(str(tuned)) != _model(named):
        raise UsageError(f"{run.name} has tuned {tuned}, not {named}")


def _model(name: str) -> str:
    """Returns a model's name without folders and options."""
    return name.rpartition("/")[2].partition(",")[0]


Runs = Annotated[
    list[Path] | None,
    typer.Option(
        parser=run_path("kernels", check=of_the_model),
        autocompletion=completion.runs,
        metavar="FOLDER",
        help="Run of `autotune kernels` with the step's kernels; may be repeated.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        help="Instead of --model, a program on the device that trains, with its arguments; "
        "{threads} is replaced by the number of threads."
    ),
]
StepsFrom = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="Pattern of the line that ends a step; a group (?P<ms>...) has its milliseconds.",
    ),
]
Batch = Annotated[
    int | None, typer.Option(help=f"Batch size of --model. [default: {DEFAULT_BATCH}]")
]
Classes = Annotated[int | None, typer.Option(help="Classes of a built-in --model. [default: 10]")]
Optimizer = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.optimizers,
        metavar="NAME[:KEY=VALUE,...]",
        help="sgd, momentum, nesterov, adam, adamw, rmsprop or adagrad, such as "
        "adam:learning_rate=0.001,weight_decay=0.01; clip_norm or clip_value limit gradients. [default: sgd]",
    ),
]
InputShape = Annotated[
    str | None,
    typer.Option(
        metavar="CxHxW",
        help="Input of a PyTorch --model that has no input_shape; TxF for sequences, F for vectors.",
    ),
]
Seq = Annotated[
    int | None,
    typer.Option("--seq", metavar="N", help="Tokens of a sample of a hf: --model. [default: 128]"),
]
Lora = Annotated[
    int | None,
    typer.Option(
        "--lora",
        metavar="RANK",
        help="Train LoRA adapters of this rank in the linear layers of a hf: --model; its own weights are frozen.",
    ),
]
Train = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        autocompletion=completion.trained,
        metavar="PATTERN",
        help="Parameters of a PyTorch --model that train, such as 'head.*' or last:2 (the last two layers with "
        "parameters); others are frozen. frozen:eval puts frozen layers into evaluation mode. May be repeated. "
        "[default: those that require a gradient]",
    ),
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Take the batch in parts of N samples and accumulate gradients; "
        "batch norm sees one part at a time.",
    ),
]
Recompute = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Cut the forward pass into up to N segments, and compute their activations again "
        "in the backward pass.",
    ),
]
Layout = Annotated[
    Literal["channels-first", "channels-last"] | None,
    typer.Option(
        help="Order of images and filters in memory. [default: the target's; for a step, "
        "the faster one if the --run folders have both]"
    ),
]
