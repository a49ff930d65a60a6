"""Options that say which training step is meant, shared by the commands that tune and run one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from autotune.workloads import StepForm, StepGraph

DEFAULT_BATCH = 4
DEFAULT_CLASSES = 10

Batch = Annotated[
    int | None, typer.Option(help=f"Batch size of --model. [default: {DEFAULT_BATCH}]")
]
Classes = Annotated[
    int | None, typer.Option(help=f"Classes of --model. [default: {DEFAULT_CLASSES}]")
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Take the batch in parts of N samples and accumulate gradients; batch norm sees one part at a time.",
    ),
]
Recompute = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Cut the forward pass into up to N segments and compute their activations again in the backward pass.",
    ),
]
Layout = Annotated[
    Literal["channels-first", "channels-last"] | None,
    typer.Option(help="Order of images and filters in memory. [default: the target's]"),
]


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
    if part < 1 or batch % part:
        fitting = ", ".join(str(n) for n in range(1, batch + 1) if batch % n == 0)
        raise UsageError(
            f"--micro-batch {part} does not divide --batch {batch}", hint=f"it may be {fitting}"
        )
    if recompute is not None and recompute < 1:
        raise UsageError(f"--recompute is {recompute}", hint="give 1 or more segments, such as 4")
    last = (layout or usual).replace("-", "_") == "channels_last"
    return StepForm("channels_last" if last else "channels_first", batch // part, recompute or 0)


def model_step(model: str, batch: int, classes: int, form: StepForm) -> StepGraph:
    """Builds a model's step in a form.

    Raises:
        UsageError: Unknown model, or impossible sizes.
    """
    from autotune.errors import UsageError
    from autotune.workloads import build_model, formed

    if batch < 1:
        raise UsageError(f"{model}: batch={batch} is too small", hint="batch starts at 1")
    return formed(build_model(model, batch // form.micro_batches, classes), form)
