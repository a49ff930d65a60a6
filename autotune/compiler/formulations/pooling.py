"""Pooling. Both forward and backward kernels gather their inputs from windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.elementwise import zero
from autotune.compiler.formulations.layouts import compute, framed, reader
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import AvgPool2d, GlobalAvgPool, MaxPool2d


@formulation("max_pool2d", "forward", "direct")
def max_pool_forward(op: MaxPool2d, inputs: Tensors) -> Tensors:
    """y is the window's maximum; index is the first position, r*S+s, that holds it."""
    x = reader(op, inputs[0])
    (sh, sw), (ph, pw) = op.stride, op.pad
    high, wide = (op.oh - 1) * sh + op.r, (op.ow - 1) * sw + op.s
    if (ph, pw) != (0, 0) or high > op.h or wide > op.w:
        shape = (op.n, op.c, max(high, op.h + ph), max(wide, op.w + pw))
        value = framed(op, inputs[0], te.min_value("float32"))
        x = reader(op, compute(op, shape, value, "pad"))
    shape = (op.n, op.c, op.oh, op.ow)
    rr, rs = te.reduce_axis((0, op.r), "rr"), te.reduce_axis((0, op.s), "rs")
    y = compute(
        op,
        shape,
        lambda b, i, p, q: te.max(x(b, i, p * sh + rr, q * sw + rs), axis=[rr, rs]),
        "y",
    )
    qr, qs = te.reduce_axis((0, op.r), "qr"), te.reduce_axis((0, op.s), "qs")
    none, top = te.const(op.r * op.s, "int32"), reader(op, y)

    def first(b: Any, i: Any, p: Any, q: Any) -> Any:
        hit = x(b, i, p * sh + qr, q * sw + qs) == top(b, i, p, q)
        return te.min(tirx.Select(hit, qr * op.s + qs, none), axis=[qr, qs])

    return [y, compute(op, shape, first, "index")]


@formulation("max_pool2d", "data_grad", "direct")
def max_pool_data_grad(op: MaxPool2d, inputs: Tensors) -> Tensors:
    """Gathers: each input position sums the gradients of the windows whose first maximum it is."""
    dy, index = (reader(op, tensor) for tensor in inputs)
    (rr, rs), windows = _windows(op)

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        (p, q), (r, s), inside = windows(y, z)
        hit = te.if_then_else(inside, index(b, i, p, q), te.const(-1, "int32")) == r * op.s + s
        return te.if_then_else(te.all(inside, hit), dy(b, i, p, q), zero())

    shape = (op.n, op.c, op.h, op.w)
    return [compute(op, shape, lambda b, i, y, z: te.sum(value(b, i, y, z), axis=[rr, rs]), "dx")]


@formulation("avg_pool2d", "forward", "direct")
def avg_pool_forward(op: AvgPool2d, inputs: Tensors) -> Tensors:
    x = reader(op, inputs[0])
    (sh, sw), (ph, pw) = op.stride, op.pad
    if (ph, pw) != (0, 0):
        shape = (op.n, op.c, op.h + 2 * ph, op.w + 2 * pw)
        x = reader(op, compute(op, shape, framed(op, inputs[0], zero()), "pad"))
    rr, rs = te.reduce_axis((0, op.r), "rr"), te.reduce_axis((0, op.s), "rs")
    shape, share = (op.n, op.c, op.oh, op.ow), te.const(1.0 / (op.r * op.s), "float32")
    total = compute(
        op,
        shape,
        lambda b, i, p, q: te.sum(x(b, i, p * sh + rr, q * sw + rs), axis=[rr, rs]),
        "total",
    )
    return [compute(op, shape, lambda *at: reader(op, total)(*at) * share, "y")]


@formulation("avg_pool2d", "data_grad", "direct")
def avg_pool_data_grad(op: AvgPool2d, inputs: Tensors) -> Tensors:
    """Gathers: each input position sums the gradients of the windows that it lies in."""
    dy = reader(op, inputs[0])
    (rr, rs), windows = _windows(op)
    shape, share = (op.n, op.c, op.h, op.w), te.const(1.0 / (op.r * op.s), "float32")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        (p, q), _, inside = windows(y, z)
        return te.if_then_else(inside, dy(b, i, p, q), zero())

    total = compute(op, shape, lambda *at: te.sum(value(*at), axis=[rr, rs]), "total")
    return [compute(op, shape, lambda *at: reader(op, total)(*at) * share, "dx")]


@formulation("global_avg_pool", "forward", "direct")
def global_avg_pool_forward(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    x = reader(op, inputs[0])
    rj = te.reduce_axis((0, op.s), "rj")
    total = te.compute((op.n, op.c), lambda b, i: te.sum(x(b, i, rj), axis=rj), name="total")
    return [
        te.compute(
            (op.n, op.c), lambda b, i: total[b, i] * te.const(1.0 / op.s, "float32"), name="y"
        )
    ]


@formulation("global_avg_pool", "data_grad", "direct")
def global_avg_pool_data_grad(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (dy,) = inputs
    share = te.const(1.0 / op.s, "float32")
    return [compute(op, (op.n, op.c, op.s), lambda b, i, j: dy[b, i] * share, "dx")]


def _windows(op: MaxPool2d | AvgPool2d) -> tuple[tuple[Any, Any], Callable[[Any, Any], Any]]:
    """Returns the windows that contain an input position.

    Returns:
        Two reduction axes over the windows, and a function. For a position (y, z), the function returns the window
        (p, q), the place (r, s) in it, and whether this window exists.
    """
    (sh, sw), (ph, pw) = op.stride, op.pad
    th, tw = -(-op.r // sh), -(-op.s // sw)
    rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")

    def at(y: Any, z: Any) -> Any:
        p, q = (y + ph) // sh - rr, (z + pw) // sw - rs
        r, s = (y + ph) % sh + rr * sh, (z + pw) % sw + rs * sw
        return (p, q), (r, s), te.all(p >= 0, p < op.oh, q >= 0, q < op.ow, r < op.r, s < op.s)

    return (rr, rs), at
