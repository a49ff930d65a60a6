"""Bias, activation, concatenation and dropout: kernels that memory traffic bounds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Add, Bias, Concat, Dropout, Relu


def zero() -> Any:
    """Zero as a constant of the kernels' type."""
    return te.const(0.0, "float32")


@formulation("bias", "forward", "direct")
def bias_forward(op: Bias, inputs: Tensors) -> Tensors:
    x, bias = inputs

    def value(b: Any, i: Any, j: Any) -> Any:
        total = x[b, i, j] + bias[i]
        return te.max(total, zero()) if op.relu else total

    return [te.compute((op.n, op.c, op.s), value, name="y")]


@formulation("bias", "data_grad", "direct")
def bias_data_grad(op: Bias, inputs: Tensors) -> Tensors:
    y, dy = inputs
    return [
        te.compute(
            (op.n, op.c, op.s),
            lambda b, i, j: select(y[b, i, j] > zero(), dy[b, i, j], zero()),
            name="dx",
        )
    ]


@formulation("bias", "weight_grad", "direct")
def bias_weight_grad(op: Bias, inputs: Tensors) -> Tensors:
    (dy,) = inputs
    rn, rj = te.reduce_axis((0, op.n), "rn"), te.reduce_axis((0, op.s), "rj")
    return [te.compute((op.c,), lambda i: te.sum(dy[rn, i, rj], axis=[rn, rj]), name="dbias")]


@formulation("bias", "weight_grad", "planes", applies=lambda op: op.n > 1 and op.s > 1)
def bias_weight_grad_planes(op: Bias, inputs: Tensors) -> Tensors:
    """Sums each plane first, then over the batch: n times the parallel work of the direct form."""
    (dy,) = inputs
    return [channel_sum(op.n, op.c, op.s, "dbias", lambda b, i, j: dy[b, i, j])]


def channel_sum(n: int, c: int, s: int, name: str, value: Callable[[Any, Any, Any], Any]) -> Any:
    """Sums `value(b, i, j)` over batch and pixels, plane by plane: n * c sums can run at once."""
    rn, rj = te.reduce_axis((0, n), "rn"), te.reduce_axis((0, s), "rj")
    planes = te.compute(
        (n, c), lambda b, i: te.sum(value(b, i, rj), axis=rj), name=f"{name}_planes"
    )
    return te.compute((c,), lambda i: te.sum(planes[rn, i], axis=rn), name=name)


def select(condition: Any, value: Any, otherwise: Any) -> Any:
    """Chooses between two values that may both be computed."""
    from tvm import tirx

    return tirx.Select(condition, value, otherwise)


@formulation("relu", "forward", "direct")
def relu_forward(op: Relu, inputs: Tensors) -> Tensors:
    (x,) = inputs

    def value(i: Any) -> Any:
        y = te.max(x[i], zero())
        return te.min(y, te.const(6.0, "float32")) if op.six else y

    return [te.compute((op.size,), value, name="y")]


@formulation("relu", "data_grad", "direct")
def relu_data_grad(op: Relu, inputs: Tensors) -> Tensors:
    y, dy = inputs

    def value(i: Any) -> Any:
        passes = y[i] > zero()
        if op.six:
            passes = te.all(passes, y[i] < te.const(6.0, "float32"))
        return select(passes, dy[i], zero())

    return [te.compute((op.size,), value, name="dx")]


def _starts(op: Concat) -> list[int]:
    """First channel of each part in the joined tensor."""
    return list(accumulate(op.parts, initial=0))[:-1]


@formulation("concat", "forward", "direct")
def concat_forward(op: Concat, inputs: Tensors) -> Tensors:
    def value(b: Any, i: Any, j: Any) -> Any:
        *earlier, last = zip(inputs, _starts(op), op.parts, strict=True)
        part, start, _ = last
        result = part[b, i - start, j]
        for part, start, channels in reversed(earlier):
            result = te.if_then_else(i < start + channels, part[b, i - start, j], result)
        return result

    return [te.compute((op.n, sum(op.parts), op.s), value, name="y")]


@formulation("concat", "data_grad", "direct")
def concat_data_grad(op: Concat, inputs: Tensors) -> Tensors:
    (dy,) = inputs

    def part(name: str, start: int, channels: int) -> Any:
        return te.compute(
            (op.n, channels, op.s), lambda b, i, j: dy[b, i + start, j], name=f"d{name}"
        )

    return [
        part(name, start, channels)
        for name, start, channels in zip("abcd", _starts(op), op.parts, strict=False)
    ]


@formulation("add", "forward", "direct")
@formulation("add", "data_grad", "direct")
def add(op: Add, inputs: Tensors) -> Tensors:
    a, b = inputs
    return [te.compute((op.size,), lambda i: a[i] + b[i], name="y")]


@formulation("dropout", "forward", "direct")
@formulation("dropout", "data_grad", "direct")
def dropout(op: Dropout, inputs: Tensors) -> Tensors:
    x, mask = inputs
    return [te.compute((op.size,), lambda i: x[i] * mask[i], name="y")]
