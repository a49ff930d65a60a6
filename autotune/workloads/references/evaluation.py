"""Computes the result of each kernel in float64 with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.expressions import evaluate_described
from autotune.workloads.layout import channels_first, operand_layouts
from autotune.workloads.operators import (
    Adam,
    Add,
    Attention,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Bmm,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    Expression,
    GlobalAvgPool,
    Kernel,
    Matmul,
    MaxPool2d,
    Momentum,
    OwnKernel,
    Relu,
    RunningPower,
    RunningStats,
    Sgd,
    TensorSpec,
)
from autotune.workloads.references import (
    attention,
    convolution,
    elementwise,
    normalization,
    optimizers,
    pooling,
)
from autotune.workloads.references.own import own_reference

Array = NDArray[Any]


def reference(kernel: Kernel, inputs: Sequence[Array]) -> list[Array]:
    """Computes a kernel in float64.

    Args:
        kernel: The kernel to compute.
        inputs: One array for each of ``kernel.inputs``, of any number type. Only the number of elements must agree
            with the operand, since kernels take contiguous buffers.

    Returns:
        One array for each of ``kernel.outputs``, in its shape: float64, or int32 for an index.

    Raises:
        UsageError: The inputs do not fit the kernel's operands, or the operator has no reference.
    """
    if len(inputs) != len(kernel.inputs):
        raise UsageError(
            f"{kernel.name}: {len(inputs)} inputs were given",
            hint=f"it takes {', '.join(spec.name for spec in kernel.inputs)}",
        )
    operands = zip(kernel.inputs, inputs, strict=True)
    arrays = [_operand(kernel, spec, array) for spec, array in operands]
    taken = len(kernel.main.inputs)
    results, rest = _alone(kernel.main, arrays[:taken]), arrays[taken:]
    for follower in kernel.epilogue:
        added, rest = rest[: len(follower.added_inputs)], rest[len(follower.added_inputs) :]
        at = follower.streamed or 0
        own = [*added[:at], results[0], *added[at:]]
        shaped = [_operand(follower, spec, a) for spec, a in zip(follower.inputs, own, strict=True)]
        results = _alone(follower, shaped)
    return [
        np.ascontiguousarray(array.reshape(spec.shape))
        for spec, array in zip(kernel.outputs, results, strict=True)
    ]


def _alone(kernel: Kernel, inputs: list[Array]) -> list[Array]:
    """Computes a kernel without an epilogue. Operands in another layout are reordered."""
    read, written = operand_layouts(kernel)
    plain = Kernel(channels_first(kernel.operator), kernel.role)
    first = [a if how is None else how.restore(a) for how, a in zip(read, inputs, strict=True)]
    results = _compute(plain, first)
    return [a if how is None else how.store(a) for how, a in zip(written, results, strict=True)]


def _operand(kernel: Kernel, spec: TensorSpec, array: Array) -> Array:
    if array.size != spec.elements:
        raise UsageError(
            f"{kernel.name}: input {spec.name} has {array.size} elements",
            hint=f"its shape is {spec.shape}, {spec.elements} elements",
        )
    dtype = np.int32 if spec.dtype == "int32" else np.float64
    return np.asarray(array, dtype).reshape(spec.shape)


def _compute(kernel: Kernel, inputs: list[Array]) -> Sequence[Array]:
    role = kernel.role
    match kernel.operator:
        case Conv2d() as operator:
            return convolution.conv2d(operator, role, inputs)
        case Matmul() as operator:
            return convolution.matmul(operator, role, inputs)
        case Bmm():
            return convolution.bmm(role, inputs)
        case Attention() as operator:
            return attention.attention(operator, role, inputs)
        case Bias() as operator:
            return elementwise.bias(operator, role, inputs)
        case Relu() as operator:
            return elementwise.relu(operator, role, inputs)
        case BatchStats():
            return normalization.batch_stats(inputs[0])
        case BatchNorm() as operator:
            return normalization.batch_norm(operator, role, inputs)
        case RunningStats() as operator:
            return normalization.running_stats(operator, inputs)
        case MaxPool2d() as operator if role == "forward":
            return pooling.max_pool2d_forward(operator, inputs[0])
        case MaxPool2d() as operator:
            return [pooling.max_pool2d_data_grad(operator, inputs[0], inputs[1])]
        case AvgPool2d() as operator:
            return [pooling.avg_pool2d(operator, role, inputs[0])]
        case GlobalAvgPool() as operator:
            return pooling.global_avg_pool(operator, role, inputs)
        case Concat() as operator:
            return elementwise.concat(operator, role, inputs)
        case Add():
            return [inputs[0] + inputs[1]]
        case Dropout():
            return [inputs[0] * inputs[1]]
        case CrossEntropy() as operator:
            return elementwise.cross_entropy(operator, role, inputs[0], inputs[1])
        case Sgd() | Momentum() | Adam() | RunningPower() as operator:
            return optimizers.update(operator, inputs)
        case OwnKernel() as operator:
            return own_reference(operator, inputs)
        case Expression() as operator:
            return evaluate_described(operator.kernel, inputs)
        case unknown:
            raise UsageError(
                f"operator {unknown.name} has no reference",
                hint="add it in autotune/workloads/references/evaluation.py",
            )
