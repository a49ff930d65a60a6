"""Float64 references of the operators that touch each element once, and of the loss."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.operators import Bias, Concat, CrossEntropy, Relu, Role

Array = NDArray[np.float64]


def bias(operator: Bias, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of a bias with or without ReLU."""
    if role == "forward":
        x, offsets = inputs
        y = x + offsets[:, None]
        return [np.maximum(y, 0.0)] if operator.relu else [y]
    if role == "data_grad":
        y, dy = inputs
        return [np.where(y > 0, dy, 0.0)]
    return [inputs[0].sum(axis=(0, 2))]


def relu(operator: Relu, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of ReLU or ReLU6."""
    if role == "forward":
        return [np.clip(inputs[0], 0.0, 6.0 if operator.six else None)]
    y, dy = inputs
    return [np.where((y > 0) & (y < 6) if operator.six else y > 0, dy, 0.0)]


def concat(operator: Concat, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of a concatenation along the channels."""
    if role == "forward":
        return [np.concatenate(inputs, axis=1)]
    dy = inputs[0]
    return np.split(dy, np.cumsum(operator.parts)[:-1], axis=1)


def cross_entropy(
    operator: CrossEntropy, role: Role, logits: Array, labels: NDArray[np.int32]
) -> list[Array]:
    """Computes one role of softmax and mean cross entropy.

    Raises:
        UsageError: A label is not a class.
    """
    if labels.min() < 0 or labels.max() >= operator.classes:
        raise UsageError(
            f"cross_entropy: labels reach from {labels.min()} to {labels.max()}",
            hint=f"labels must be in 0 .. {operator.classes - 1}",
        )
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(axis=1, keepdims=True)
    rows = np.arange(operator.n)
    if role == "forward":
        losses = np.log(sums[:, 0]) - shifted[rows, labels]
        return [losses.sum(keepdims=True) / operator.samples]
    dlogits: Array = exponentials / sums
    dlogits[rows, labels] -= 1.0
    return [dlogits / operator.samples]
