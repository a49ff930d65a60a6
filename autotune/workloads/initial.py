"""First values of a training step: parameters, data, labels, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.graph import StepGraph, Tensor
from autotune.workloads.references import dropout_mask


def initial_values(graph: StepGraph, seed: int) -> dict[str, NDArray[Any]]:
    """Draws a value for each source tensor; the same graph and seed give the same values.

    Weights and biases are uniform in ``[-1/sqrt(fan_in), 1/sqrt(fan_in)]``, PyTorch's default for
    convolutions and fully connected layers (``kaiming_uniform_`` with ``a = sqrt(5)``). Data are
    standard normal, labels random classes, dropout masks 0 or ``1 / (1 - p)``.

    Args:
        graph: The step.
        seed: Seed of the generator, not negative.

    Returns:
        Tensor name -> array in its shape, float32 or int32.

    Raises:
        UsageError: ``seed`` is negative, or a source tensor does not say how it starts.
    """
    if seed < 0:
        raise UsageError(f"seed {seed} is negative", hint="use 0 or more")
    generator = np.random.default_rng(seed)
    return {tensor.name: _draw(graph, tensor, generator) for tensor in graph.sources}


def _draw(graph: StepGraph, tensor: Tensor, generator: np.random.Generator) -> NDArray[Any]:
    if tensor.initial is None:
        raise UsageError(
            f"step graph {graph.name!r}: {tensor.kind} {tensor.name!r} does not say how it starts",
            hint="set Tensor.initial",
        )
    value, shape = tensor.initial.value, tensor.layout.shape if tensor.layout else tensor.shape
    draws: dict[str, Callable[[], NDArray[Any]]] = {
        "uniform": lambda: generator.uniform(-value, value, shape),
        "normal": lambda: generator.normal(0.0, value, shape),
        "constant": lambda: np.full(shape, value),
        "classes": lambda: generator.integers(0, int(value), shape),
        "mask": lambda: dropout_mask(generator, shape, value),
    }
    dtype = np.int32 if tensor.dtype == "int32" else np.float32
    return tensor.stored(draws[tensor.initial.distribution]().astype(dtype))
