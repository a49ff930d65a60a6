"""Inputs to measure and check a kernel with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.layout import channels_first, operand_layouts
from autotune.workloads.operators import (
    Adam,
    BatchNorm,
    CrossEntropy,
    Dropout,
    Expression,
    Kernel,
    MaxPool2d,
    Momentum,
    OwnKernel,
    Relu,
    RunningStats,
    Sgd,
)
from autotune.workloads.references.described_inputs import described_inputs
from autotune.workloads.references.own import own_inputs
from autotune.workloads.references.pooling import max_pool2d_forward

RATES = {
    "learning_rate": -0.01,  # Negative: if weight and step cancelled, float32 would lose digits.
    "momentum": 0.9,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "beta1_power": 0.9**3,
    "beta2_power": 0.999**3,
}
"""An optimiser's one-element operands; Adam's are those of the third step."""

MOMENTUM = 0.1
DROPOUT_PROBABILITY = 0.5


def random_inputs(kernel: Kernel, seed: int) -> list[NDArray[Any]]:
    """Makes inputs for a kernel. The same kernel and seed give the same arrays.

    Float operands are uniform in [-0.25, 1.25]. They are drawn in float64 and rounded, so that all 24 bits of the
    mantissa are used, and computing in lower precision is detected. The range is mostly positive so that long
    float32 sums are well conditioned: their relative error stays near that of one rounding, instead of growing
    where terms cancel. It has negative values so that ReLU and max pooling are tested.

    Labels are random classes; the pool index is the one of a random ``x``; dropout masks are 0 or
    ``1 / (1 - p)`` with ``p = 0.5``; an optimiser's rates are ``RATES`` and its second moments are not
    negative. Of a batch normalisation, variances are positive, outputs reach beyond 6 and the momentum
    is 0.1; of a ReLU6, all operands reach beyond 6. For described kernels see ``described_inputs``, for the user's
    own ones ``own_inputs``; without such a function, their integers are 0 or 1.

    Args:
        kernel: The kernel.
        seed: Seed of the generator, not negative.

    Returns:
        One array for each of ``kernel.inputs``, in its shape and type.
    """
    generator = np.random.default_rng(seed)
    arrays = _operands(kernel.main, generator)
    for follower in kernel.epilogue:
        added = _operands(follower, generator)
        arrays += [array for at, array in enumerate(added) if at != follower.streamed]
    return [a.reshape(spec.shape) for spec, a in zip(kernel.inputs, arrays, strict=True)]


def _operands(kernel: Kernel, generator: np.random.Generator) -> list[NDArray[Any]]:
    """Draws the operands of a kernel without an epilogue, in their layouts."""
    layouts, _ = operand_layouts(kernel)
    arrays = _channels_first(Kernel(channels_first(kernel.operator), kernel.role), generator)
    return [a if how is None else how.store(a) for how, a in zip(layouts, arrays, strict=True)]


def _channels_first(kernel: Kernel, generator: np.random.Generator) -> list[NDArray[Any]]:
    operator = kernel.operator
    if isinstance(operator, Expression):
        return described_inputs(operator.kernel, generator)
    if isinstance(operator, OwnKernel) and (drawn := own_inputs(operator, generator)) is not None:
        return drawn
    arrays: list[NDArray[Any]] = []
    for spec in kernel.inputs:
        if isinstance(operator, CrossEntropy) and spec.name == "labels":
            arrays.append(generator.integers(0, operator.classes, spec.shape, np.int32))
        elif isinstance(operator, MaxPool2d) and spec.name == "index":
            x = _uniform(generator, operator.inputs("forward")[0].shape)
            arrays.append(max_pool2d_forward(operator, x.astype(np.float64))[1])
        elif isinstance(operator, Dropout) and spec.name == "mask":
            arrays.append(dropout_mask(generator, spec.shape, DROPOUT_PROBABILITY))
        elif isinstance(operator, Sgd | Momentum | Adam) and spec.name in RATES:
            arrays.append(np.full(spec.shape, RATES[spec.name], np.float32))
        elif isinstance(operator, Adam) and spec.name == "second":
            arrays.append(np.abs(_uniform(generator, spec.shape)))
        elif isinstance(operator, BatchNorm) and spec.name == "variance":
            arrays.append(np.abs(_uniform(generator, spec.shape)) + np.float32(0.05))
        elif (isinstance(operator, BatchNorm) and spec.name == "y") or (
            isinstance(operator, Relu) and operator.six
        ):
            arrays.append(6 * _uniform(generator, spec.shape))
        elif isinstance(operator, OwnKernel) and spec.dtype == "int32":
            arrays.append(generator.integers(0, 2, spec.shape, np.int32))
        elif isinstance(operator, RunningStats) and spec.name == "momentum":
            arrays.append(np.full(spec.shape, MOMENTUM, np.float32))
        else:
            arrays.append(_uniform(generator, spec.shape))
    return arrays


def dropout_mask(
    generator: np.random.Generator, shape: tuple[int, ...], probability: float
) -> NDArray[np.float32]:
    """Draws a mask that is 0 with ``probability`` and ``1 / (1 - probability)`` otherwise."""
    kept = generator.random(shape) >= probability
    return np.where(kept, 1.0 / (1.0 - probability), 0.0).astype(np.float32)


def _uniform(generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return generator.uniform(-0.25, 1.25, shape).astype(np.float32)
