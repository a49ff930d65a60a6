"""Batch normalisation: two passes over a batch for its statistics, and one pass each for output and gradients."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.layouts import compute, reader
from autotune.compiler.formulations.memory_bound import (
    COLUMN_REDUCTION,
    channel_sum,
    column_reduction,
    in_vectors,
)
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import BatchNorm, BatchStats, RunningStats


def _float(value: float) -> Any:
    return te.const(value, "float32")


@formulation("batch_stats", "forward", "direct")
def batch_stats(op: BatchStats, inputs: Tensors) -> Tensors:
    """Computes mean and variance. The variance is summed around the mean: sums of squares would lose all digits."""
    x = reader(op, inputs[0])
    share = _float(1.0 / (op.n * op.s))
    total = channel_sum(op.n, op.c, op.s, "total", x)
    mean = te.compute((op.c,), lambda i: total[i] * share, name="mean")

    def square(b: Any, i: Any, j: Any) -> Any:
        return (x(b, i, j) - mean[i]) * (x(b, i, j) - mean[i])

    squares = channel_sum(op.n, op.c, op.s, "squares", square)
    return [mean, te.compute((op.c,), lambda i: squares[i] * share, name="variance")]


@formulation("batch_stats", "forward", "rows", applies=lambda op: op.channels_last)
def batch_stats_rows(op: BatchStats, inputs: Tensors) -> Tensors:
    """See `_batch_stats_rows`; scheduled by the search space's general rules."""
    return _batch_stats_rows(op, inputs, marked=False)


@formulation("batch_stats", "forward", "row_sums", rule=COLUMN_REDUCTION, applies=in_vectors)
def batch_stats_column_reduction(op: BatchStats, inputs: Tensors) -> Tensors:
    """See `_batch_stats_rows`; scheduled by the rule for column reductions."""
    return _batch_stats_rows(op, inputs, marked=True)


def _batch_stats_rows(op: BatchStats, inputs: Tensors, *, marked: bool) -> Tensors:
    """One pass over the batch: sums of the values and of their squares, shifted by each channel's first value.

    Without the shift, all digits would be lost to cancellation if the mean is much larger than the deviation
    (Chan, Golub and LeVeque, 1983).
    """
    x = reader(op, inputs[0])
    share = _float(1.0 / (op.n * op.s))

    def shifted(b: Any, i: Any, j: Any) -> Any:
        return x(b, i, j) - x(0, i, 0)

    total, squares = column_reduction(
        op,
        "shifted",
        shifted,
        lambda b, i, j: shifted(b, i, j) * shifted(b, i, j),
        marked=marked,
    )
    mean = te.compute((op.c,), lambda i: x(0, i, 0) + total[i] * share, name="mean")

    def variance(i: Any) -> Any:
        return te.max(squares[i] * share - (total[i] * share) * (total[i] * share), _float(0.0))

    return [mean, te.compute((op.c,), variance, name="variance")]


def _scale(op: BatchNorm, variance: Any) -> Any:
    """Returns the reciprocal of the standard deviation, by channel."""
    return te.compute(
        (op.c,),
        lambda i: _float(1.0) / te.sqrt(variance[i] + _float(op.epsilon)),
        name="scale",
    )


@formulation("batch_norm", "forward", "direct")
def batch_norm_forward(op: BatchNorm, inputs: Tensors) -> Tensors:
    wide, mean, variance, gamma, beta = inputs
    x, scale = reader(op, wide), _scale(op, variance)

    def value(b: Any, i: Any, j: Any) -> Any:
        y = (x(b, i, j) - mean[i]) * scale[i] * gamma[i] + beta[i]
        if op.activated:
            y = te.max(y, _float(0.0))
        return te.min(y, _float(6.0)) if op.relu6 else y

    return [compute(op, (op.n, op.c, op.s), value, "y")]


def _before_activation(op: BatchNorm, incoming: Tensors) -> Any:
    """Returns a function that reads the gradient before the activation at an element."""
    dy = reader(op, incoming[-1])
    if not op.activated:
        return dy
    y = reader(op, incoming[0])

    def value(b: Any, i: Any, j: Any) -> Any:
        passes = y(b, i, j) > _float(0.0)
        if op.relu6:
            passes = te.all(passes, y(b, i, j) < _float(6.0))
        return tirx.Select(passes, dy(b, i, j), _float(0.0))

    return value


@formulation("batch_norm", "weight_grad", "direct")
def batch_norm_weight_grad(op: BatchNorm, inputs: Tensors) -> Tensors:
    wide, mean, variance, *incoming = inputs
    x = reader(op, wide)
    scale, dz = _scale(op, variance), _before_activation(op, incoming)

    def product(b: Any, i: Any, j: Any) -> Any:
        return dz(b, i, j) * ((x(b, i, j) - mean[i]) * scale[i])

    return [
        channel_sum(op.n, op.c, op.s, "dgamma", product),
        channel_sum(op.n, op.c, op.s, "dbeta", dz),
    ]


@formulation("batch_norm", "weight_grad", "rows", applies=lambda op: op.channels_last)
def batch_norm_weight_grad_rows(op: BatchNorm, inputs: Tensors) -> Tensors:
    """See `_weight_grad_rows`; scheduled by the search space's general rules."""
    return _weight_grad_rows(op, inputs, marked=False)


@formulation("batch_norm", "weight_grad", "row_sums", rule=COLUMN_REDUCTION, applies=in_vectors)
def batch_norm_weight_grad_column_reduction(op: BatchNorm, inputs: Tensors) -> Tensors:
    """See `_weight_grad_rows`; scheduled by the rule for column reductions."""
    return _weight_grad_rows(op, inputs, marked=True)


def _weight_grad_rows(op: BatchNorm, inputs: Tensors, *, marked: bool) -> Tensors:
    """One pass: both sums are computed block by block over the batch's pixels."""
    wide, mean, variance, *incoming = inputs
    x = reader(op, wide)
    scale, dz = _scale(op, variance), _before_activation(op, incoming)
    product, dbeta = column_reduction(
        op, "sums", lambda b, i, j: dz(b, i, j) * (x(b, i, j) - mean[i]), dz, marked=marked
    )
    return [
        te.compute((op.c,), lambda i: product[i] * scale[i], name="dgamma"),
        te.compute((op.c,), lambda i: dbeta[i], name="dbeta"),
    ]


@formulation("batch_norm", "data_grad", "direct")
def batch_norm_data_grad(op: BatchNorm, inputs: Tensors) -> Tensors:
    wide, mean, variance, gamma, dgamma, dbeta, *incoming = inputs
    x = reader(op, wide)
    scale, dz = _scale(op, variance), _before_activation(op, incoming)
    share = _float(1.0 / (op.n * op.s))

    def value(b: Any, i: Any, j: Any) -> Any:
        xhat = (x(b, i, j) - mean[i]) * scale[i]
        mean_free = dz(b, i, j) - dbeta[i] * share - xhat * (dgamma[i] * share)
        return gamma[i] * scale[i] * mean_free

    return [compute(op, (op.n, op.c, op.s), value, "dx")]


@formulation("running_stats", "update", "direct")
def running_stats(op: RunningStats, inputs: Tensors) -> Tensors:
    running_mean, running_variance, mean, variance, momentum = inputs
    unbiased = _float(op.samples / (op.samples - 1))

    def average(running: Any, batch: Any) -> Any:
        return (_float(1.0) - momentum[0]) * running + momentum[0] * batch

    return [
        te.compute((op.c,), lambda i: average(running_mean[i], mean[i]), name="new_mean"),
        te.compute(
            (op.c,),
            lambda i: average(running_variance[i], variance[i] * unbiased),
            name="new_variance",
        ),
    ]
