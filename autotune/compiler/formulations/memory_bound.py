"""Bias, activation, pooling, concatenation, dropout and update: kernels that memory traffic bounds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Add, Bias, Concat, Dropout, GlobalAvgPool, MaxPool2d, Sgd


def _zero() -> Any:
    return te.const(0.0, "float32")


@formulation("bias", "forward", "direct")
def bias_forward(op: Bias, inputs: Tensors) -> Tensors:
    x, bias = inputs

    def value(b: Any, i: Any, j: Any) -> Any:
        total = x[b, i, j] + bias[i]
        return te.max(total, _zero()) if op.relu else total

    return [te.compute((op.n, op.c, op.s), value, name="y")]


@formulation("bias", "data_grad", "direct")
def relu_data_grad(op: Bias, inputs: Tensors) -> Tensors:
    y, dy = inputs
    return [
        te.compute(
            (op.n, op.c, op.s),
            lambda b, i, j: _select(y[b, i, j] > _zero(), dy[b, i, j], _zero()),
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


def _select(condition: Any, value: Any, otherwise: Any) -> Any:
    from tvm import tirx

    return tirx.Select(condition, value, otherwise)


@formulation("max_pool2d", "forward", "direct")
def max_pool_forward(op: MaxPool2d, inputs: Tensors) -> Tensors:
    """y is the window's maximum; index is the first position, r*S+s, that holds it."""
    (x,) = inputs
    (sh, sw), (ph, pw) = op.stride, op.pad
    high, wide = (op.oh - 1) * sh + op.r, (op.ow - 1) * sw + op.s
    xp = x
    if (ph, pw) != (0, 0) or high > op.h or wide > op.w:
        lowest = te.min_value("float32")
        xp = te.compute(
            (op.n, op.c, max(high, op.h + ph), max(wide, op.w + pw)),
            lambda b, i, y, z: te.if_then_else(
                te.all(y >= ph, y < op.h + ph, z >= pw, z < op.w + pw),
                x[b, i, y - ph, z - pw],
                lowest,
            ),
            name="pad",
        )
    shape = (op.n, op.c, op.oh, op.ow)
    rr, rs = te.reduce_axis((0, op.r), "rr"), te.reduce_axis((0, op.s), "rs")
    y = te.compute(
        shape,
        lambda b, i, p, q: te.max(xp[b, i, p * sh + rr, q * sw + rs], axis=[rr, rs]),
        name="y",
    )
    qr, qs = te.reduce_axis((0, op.r), "qr"), te.reduce_axis((0, op.s), "qs")
    none = te.const(op.r * op.s, "int32")
    index = te.compute(
        shape,
        lambda b, i, p, q: te.min(
            _select(xp[b, i, p * sh + qr, q * sw + qs] == y[b, i, p, q], qr * op.s + qs, none),
            axis=[qr, qs],
        ),
        name="index",
    )
    return [y, index]


@formulation("max_pool2d", "data_grad", "direct")
def max_pool_data_grad(op: MaxPool2d, inputs: Tensors) -> Tensors:
    """Gathers: each input position sums the gradients of the windows whose first maximum it is."""
    dy, index = inputs
    (sh, sw), (ph, pw) = op.stride, op.pad
    th, tw = -(-op.r // sh), -(-op.s // sw)
    rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        p, q = (y + ph) // sh - rr, (z + pw) // sw - rs
        r, s = (y + ph) % sh + rr * sh, (z + pw) % sw + rs * sw
        inside = te.all(p >= 0, p < op.oh, q >= 0, q < op.ow, r < op.r, s < op.s)
        hit = te.if_then_else(inside, index[b, i, p, q], te.const(-1, "int32")) == r * op.s + s
        return te.if_then_else(te.all(inside, hit), dy[b, i, p, q], _zero())

    return [
        te.compute(
            (op.n, op.c, op.h, op.w),
            lambda b, i, y, z: te.sum(value(b, i, y, z), axis=[rr, rs]),
            name="dx",
        )
    ]


@formulation("global_avg_pool", "forward", "direct")
def avg_pool_forward(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (x,) = inputs
    rj = te.reduce_axis((0, op.s), "rj")
    total = te.compute((op.n, op.c), lambda b, i: te.sum(x[b, i, rj], axis=rj), name="total")
    return [
        te.compute(
            (op.n, op.c), lambda b, i: total[b, i] * te.const(1.0 / op.s, "float32"), name="y"
        )
    ]


@formulation("global_avg_pool", "data_grad", "direct")
def avg_pool_data_grad(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (dy,) = inputs
    return [
        te.compute(
            (op.n, op.c, op.s),
            lambda b, i, j: dy[b, i] * te.const(1.0 / op.s, "float32"),
            name="dx",
        )
    ]


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


@formulation("sgd", "update", "direct")
def sgd(op: Sgd, inputs: Tensors) -> Tensors:
    weight, grad, rate = inputs
    return [te.compute((op.size,), lambda i: weight[i] - rate[0] * grad[i], name="new_weight")]
