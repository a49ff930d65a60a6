"""Appends the layers of a traced program; the builder adds backward pass and updates."""

from __future__ import annotations

from autotune.workloads.autodiff import Value
from autotune.workloads.builder import StepBuilder
from autotune.workloads.capture.layers import LAYERS
from autotune.workloads.capture.lowering import Lowering
from autotune.workloads.capture.program import Program


def lower(name: str, program: Program, builder: StepBuilder) -> Value:
    """Appends a program's layers to a step.

    Args:
        name: The model's name, for messages.
        program: The forward pass.
        builder: A builder with the program's input and nothing else.

    Returns:
        The logits, [n, classes].

    Raises:
        UsageError: An operator, or the way in which it is used, is not supported, or its result is not used. The
            message names the operator and its place.
    """
    lowering = Lowering(name, program, builder)
    for operation in program.operations:
        lowering.append(operation, LAYERS.get(operation.operator))
    return lowering.read(program.output)
