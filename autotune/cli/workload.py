"""Options that say which training step is meant, shared by the commands that tune and run one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from autotune.cli import completion
from autotune.cli.runs import run_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.workloads import StepForm, StepGraph, TrainingStep

DEFAULT_BATCH = 4
_SAMPLES_BYTES = 2**30

Model = Annotated[
    str | None,
    typer.Option(
        autocompletion=completion.models,
        help="Model whose tuned step is measured, see `autotune models`; or a PyTorch module's factory.",
    ),
]
Runs = Annotated[
    list[Path] | None,
    typer.Option(
        parser=run_path("kernels"),
        autocompletion=completion.runs,
        metavar="FOLDER",
        help="Run of `autotune kernels` with the step's kernels; may be repeated.",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        help="Instead of --model, a program on the device that trains, with its arguments; "
        "{threads} stands for their number."
    ),
]
StepsFrom = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="What a line holds that the end of a step prints; a group (?P<ms>...) is its milliseconds.",
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
        help="sgd, momentum or adam, such as adam:learning_rate=0.001. [default: sgd]",
    ),
]
InputShape = Annotated[
    str | None,
    typer.Option(
        metavar="CxHxW",
        help="Input of a PyTorch --model that has no input_shape; TxF for sequences, F for vectors.",
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
        "the faster one where runs know both]"
    ),
]

_SHAPE = re.compile(r"[0-9]{1,6}(x[0-9]{1,6}){0,2}")


def training_step(
    model: str,
    batch: int | None,
    classes: int | None,
    optimizer: str | None,
    input_shape: str | None,
    seed: int = 1,
) -> TrainingStep:
    """The step that the options mean, a PyTorch module made with a seed.

    Raises:
        UsageError: An option makes no sense.
    """
    from autotune.errors import UsageError
    from autotune.workloads import Optimizer as Algorithm
    from autotune.workloads import TrainingStep
    from autotune.workloads.models import DEFAULT_CLASSES

    shape = None
    if input_shape is not None:
        if _SHAPE.fullmatch(input_shape) is None:
            raise UsageError(
                f"--input-shape {input_shape!r} is not one to three sizes with x between them",
                hint="such as 3x32x32: channels, height and width",
            )
        shape = tuple(map(int, input_shape.split("x")))
    if ":" in model and classes is not None:
        raise UsageError(
            "--classes goes with a built-in model", hint="a PyTorch module has its own classes"
        )
    return TrainingStep(
        model,
        DEFAULT_BATCH if batch is None else batch,
        DEFAULT_CLASSES if classes is None else classes,
        Algorithm() if optimizer is None else Algorithm.parse(optimizer),
        shape,
        seed,
    )


def step_form(
    batch: int, micro_batch: int | None, recompute: int | None, layout: str | None, usual: str
) -> StepForm:
    """The form that the options ask for.

    Args:
        batch: Samples in a step.
        micro_batch: Samples in a part; None for the whole batch.
        recompute: Segments at most; None keeps all activations.
        layout: As on the command line; None for ``usual``.
        usual: The target's layout, ``channels_first`` or ``channels_last``.

    Raises:
        UsageError: The parts do not make up the batch, or there are no segments.
    """
    from autotune.errors import UsageError
    from autotune.workloads import StepForm

    part = batch if micro_batch is None else micro_batch
    if micro_batch is not None and (part < 1 or batch % part):
        fitting = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
        raise UsageError(
            f"--micro-batch {part} does not divide --batch {batch}", hint=f"it may be {fitting}"
        )
    if recompute is not None and recompute < 1:
        raise UsageError(f"--recompute is {recompute}", hint="give 1 or more segments, such as 4")
    last = (layout or usual).replace("-", "_") == "channels_last"
    parts = 1 if micro_batch is None else batch // part
    return StepForm("channels_last" if last else "channels_first", parts, recompute or 0)


def step_feeds(graph: StepGraph, data: Path | None, seed: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields what each step is given, without end."""
    from autotune.workloads import batches, generated_samples, given_values, load_samples

    shape = graph.sample_shape
    if data is None:
        samples = generated_samples(max(64, 2 * graph.batch), shape, graph.classes, seed)
    else:
        limit = max(graph.batch, _SAMPLES_BYTES // (4 * math.prod(shape)))
        samples = load_samples(data, shape, graph.classes, limit=limit)
    for number, (images, labels) in enumerate(batches(samples, graph.batch, seed)):
        yield given_values(graph, images, labels, seed, number)
