"""Float64 references of the parameters' updates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import Adam, Momentum, RunningPower, Sgd

Array = NDArray[np.float64]


def update(operator: Sgd | Momentum | Adam | RunningPower, inputs: list[Array]) -> list[Array]:
    """Computes the new values of one update, in the order of the operator's outputs."""
    match operator:
        case Sgd():
            weight, gradient, learning_rate = inputs
            return [weight - learning_rate * gradient]
        case Momentum():
            weight, velocity, gradient, learning_rate, momentum = inputs
            velocity = momentum * velocity + gradient
            return [weight - learning_rate * velocity, velocity]
        case RunningPower():
            power, base = inputs
            return [power * base]
        case Adam():
            return _adam(*inputs)


def _adam(
    weight: Array,
    first: Array,
    second: Array,
    gradient: Array,
    learning_rate: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    beta1_power: Array,
    beta2_power: Array,
) -> list[Array]:
    first = beta1 * first + (1 - beta1) * gradient
    second = beta2 * second + (1 - beta2) * gradient**2
    deviation = np.sqrt(second / (1 - beta2_power)) + epsilon
    return [weight - learning_rate / (1 - beta1_power) * first / deviation, first, second]
