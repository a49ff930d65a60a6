"""Float64 references of batch normalisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import BatchNorm, Role, RunningStats

Array = NDArray[np.float64]


def batch_stats(x: Array) -> list[Array]:
    """Computes mean and biased variance of each channel; ``x`` is [n, c, s]."""
    return [x.mean(axis=(0, 2)), x.var(axis=(0, 2))]


def batch_norm(operator: BatchNorm, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of batch normalisation with or without an activation."""
    x, mean, variance, *rest = inputs
    scale = 1.0 / np.sqrt(variance + operator.epsilon)
    xhat = (x - mean[:, None]) * scale[:, None]
    if role == "forward":
        gamma, beta = rest
        y = gamma[:, None] * xhat + beta[:, None]
        if operator.relu6:
            return [np.clip(y, 0.0, 6.0)]
        return [np.maximum(y, 0.0) if operator.relu else y]
    dz = rest[-1]
    if operator.activated:
        y = rest[-2]
        passes = (y > 0) & (y < 6) if operator.relu6 else y > 0
        dz = np.where(passes, dz, 0.0)
    if role == "weight_grad":
        return [(dz * xhat).sum(axis=(0, 2)), dz.sum(axis=(0, 2))]
    gamma, dgamma, dbeta = (array[:, None] for array in rest[:3])
    count = operator.n * operator.s
    return [gamma * scale[:, None] * (dz - dbeta / count - xhat * dgamma / count)]


def running_stats(operator: RunningStats, inputs: list[Array]) -> list[Array]:
    """Computes the update of the running averages."""
    running_mean, running_variance, mean, variance, momentum = inputs
    unbiased = variance * operator.samples / (operator.samples - 1)
    return [
        (1 - momentum) * running_mean + momentum * mean,
        (1 - momentum) * running_variance + momentum * unbiased,
    ]
