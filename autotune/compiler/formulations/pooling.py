"""Pooling: windows gathered, forward and backward alike."""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.memory_bound import select, zero
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import AvgPool2d, GlobalAvgPool, MaxPool2d


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
            select(xp[b, i, p * sh + qr, q * sw + qs] == y[b, i, p, q], qr * op.s + qs, none),
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
        return te.if_then_else(te.all(inside, hit), dy[b, i, p, q], zero())

    return [
        te.compute(
            (op.n, op.c, op.h, op.w),
            lambda b, i, y, z: te.sum(value(b, i, y, z), axis=[rr, rs]),
            name="dx",
        )
    ]


@formulation("avg_pool2d", "forward", "direct")
def avg_pool_forward(op: AvgPool2d, inputs: Tensors) -> Tensors:
    (x,) = inputs
    (sh, sw), (ph, pw) = op.stride, op.pad
    xp = x
    if (ph, pw) != (0, 0):
        xp = te.compute(
            (op.n, op.c, op.h + 2 * ph, op.w + 2 * pw),
            lambda b, i, y, z: te.if_then_else(
                te.all(y >= ph, y < op.h + ph, z >= pw, z < op.w + pw),
                x[b, i, y - ph, z - pw],
                zero(),
            ),
            name="pad",
        )
    rr, rs = te.reduce_axis((0, op.r), "rr"), te.reduce_axis((0, op.s), "rs")
    shape, share = (op.n, op.c, op.oh, op.ow), te.const(1.0 / (op.r * op.s), "float32")
    total = te.compute(
        shape,
        lambda b, i, p, q: te.sum(xp[b, i, p * sh + rr, q * sw + rs], axis=[rr, rs]),
        name="total",
    )
    return [te.compute(shape, lambda b, i, p, q: total[b, i, p, q] * share, name="y")]


@formulation("avg_pool2d", "data_grad", "direct")
def avg_pool_data_grad(op: AvgPool2d, inputs: Tensors) -> Tensors:
    """Gathers: each input position sums the gradients of the windows that it lies in."""
    (dy,) = inputs
    (sh, sw), (ph, pw) = op.stride, op.pad
    th, tw = -(-op.r // sh), -(-op.s // sw)
    rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")
    shape, share = (op.n, op.c, op.h, op.w), te.const(1.0 / (op.r * op.s), "float32")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        p, q = (y + ph) // sh - rr, (z + pw) // sw - rs
        r, s = (y + ph) % sh + rr * sh, (z + pw) % sw + rs * sw
        inside = te.all(p >= 0, p < op.oh, q >= 0, q < op.ow, r < op.r, s < op.s)
        return te.if_then_else(inside, dy[b, i, p, q], zero())

    total = te.compute(
        shape, lambda b, i, y, z: te.sum(value(b, i, y, z), axis=[rr, rs]), name="total"
    )
    return [te.compute(shape, lambda b, i, y, z: total[b, i, y, z] * share, name="dx")]


@formulation("global_avg_pool", "forward", "direct")
def global_avg_pool_forward(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (x,) = inputs
    rj = te.reduce_axis((0, op.s), "rj")
    total = te.compute((op.n, op.c), lambda b, i: te.sum(x[b, i, rj], axis=rj), name="total")
    return [
        te.compute(
            (op.n, op.c), lambda b, i: total[b, i] * te.const(1.0 / op.s, "float32"), name="y"
        )
    ]


@formulation("global_avg_pool", "data_grad", "direct")
def global_avg_pool_data_grad(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (dy,) = inputs
    return [
        te.compute(
            (op.n, op.c, op.s),
            lambda b, i, j: dy[b, i] * te.const(1.0 / op.s, "float32"),
            name="dx",
        )
    ]
