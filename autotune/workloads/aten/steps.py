"""From a PyTorch module, a loss and example tensors to a step graph."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.program import Program
from autotune.workloads.aten.registry import aten_operators
from autotune.workloads.graph import StepGraph
from autotune.workloads.optimizer import Optimizer


def lower_step(
    name: str,
    batch: int,
    program: Program,
    optimizer: Optimizer,
    classes: Mapping[str, int],
    *,
    channels_last: bool = False,
) -> StepGraph:
    """Lowers a traced step.

    Args:
        name: The model's name.
        batch: Samples in a step.
        program: The traced step.
        optimizer: What updates the parameters.
        classes: How many values an integer input or label takes, by its name.
        channels_last: Whether images and filters are stored with their channels last.

    Returns:
        The step, not fused. Parameters and buffers have the names of the module's ``state_dict``.

    Raises:
        UsageError: An operator is not supported, or is used in a way that is not.
    """
    lowering = Lowering(name, batch, program, classes, channels_last=channels_last)
    return lowering.run(aten_operators(), optimizer)
