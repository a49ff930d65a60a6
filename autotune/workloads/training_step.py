"""From a model to the step that is run: layout, fusion, and how its memory is saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.errors import UsageError
from autotune.workloads.channels_last import channels_last
from autotune.workloads.fusion import fused
from autotune.workloads.graph import StepGraph
from autotune.workloads.micro_batches import accumulated
from autotune.workloads.recompute import recomputed

LayoutName = Literal["channels_first", "channels_last"]


@dataclass(frozen=True)
class StepForm:
    """How a step is carried out; each form computes the same, but for batch norm's statistics by micro-batch.

    Attributes:
        layout: Order of images and filters in memory.
        micro_batches: Parts that the batch is taken in, one after the other; gradients are accumulated, and each
            part is normalised by its own statistics, as with gradient accumulation in PyTorch.
        segments: Parts of the forward pass, at most, whose activations are computed again when the backward pass
            reaches them; 0 keeps all activations.
    """

    layout: LayoutName = "channels_first"
    micro_batches: int = 1
    segments: int = 0


def formed(graph: StepGraph, form: StepForm) -> StepGraph:
    """Gives a step its form.

    Args:
        graph: The plain step for one micro-batch: a whole batch where there is one part.
        form: The form.

    Returns:
        A valid step for the whole batch, fused.

    Raises:
        UsageError: The form asks for fewer than one part, or less than no segments.
    """
    if form.micro_batches < 1 or form.segments < 0:
        raise UsageError(
            f"{form.micro_batches} micro-batches and {form.segments} segments make no step",
            hint="a batch has one part at least; 0 segments keep all activations",
        )
    if form.layout == "channels_last":
        graph = channels_last(graph)
    if form.segments:
        graph = recomputed(graph, form.segments)
    return fused(accumulated(graph, form.micro_batches))
