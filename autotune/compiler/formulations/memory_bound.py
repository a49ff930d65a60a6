"""Sums over channels, pooling and concatenation: kernels that memory traffic bounds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.elementwise import zero
from autotune.compiler.formulations.layouts import compute, reader
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Bias, Concat, GlobalAvgPool, MaxPool2d


@formulation("bias", "weight_grad", "direct")
def bias_weight_grad(op: Bias, inputs: Tensors) -> Tensors:
    dy = reader(op, inputs[0])
    rn, rj = te.reduce_axis((0, op.n), "rn"), te.reduce_axis((0, op.s), "rj")
    return [te.compute((op.c,), lambda i: te.sum(dy(rn, i, rj), axis=[rn, rj]), name="dbias")]


@formulation("bias", "weight_grad", "planes", applies=lambda op: op.n > 1 and op.s > 1)
def bias_weight_grad_planes(op: Bias, inputs: Tensors) -> Tensors:
    """Sums each plane first, then over the batch: n times the parallel work of the direct form."""
    return [channel_sum(op.n, op.c, op.s, "dbias", reader(op, inputs[0]))]


def channel_sum(n: int, c: int, s: int, name: str, value: Callable[[Any, Any, Any], Any]) -> Any:
    """Sums `value(b, i, j)` over batch and pixels, plane by plane: n * c sums can run at once."""
    rn, rj = te.reduce_axis((0, n), "rn"), te.reduce_axis((0, s), "rj")
    planes = te.compute(
        (n, c), lambda b, i: te.sum(value(b, i, rj), axis=rj), name=f"{name}_planes"
    )
    return te.compute((c,), lambda i: te.sum(planes[rn, i], axis=rn), name=name)


@formulation("max_pool2d", "forward", "direct")
def max_pool_forward(op: MaxPool2d, inputs: Tensors) -> Tensors:
    """y is the window's maximum; index is the first position, r*S+s, that holds it."""
    x = reader(op, inputs[0])
    (sh, sw), (ph, pw) = op.stride, op.pad
    high, wide = (op.oh - 1) * sh + op.r, (op.ow - 1) * sw + op.s
    if (ph, pw) != (0, 0) or high > op.h or wide > op.w:
        lowest, plain = te.min_value("float32"), x
        shape = (op.n, op.c, max(high, op.h + ph), max(wide, op.w + pw))

        def inside(b: Any, i: Any, y: Any, z: Any) -> Any:
            within = te.all(y >= ph, y < op.h + ph, z >= pw, z < op.w + pw)
            return te.if_then_else(within, plain(b, i, y - ph, z - pw), lowest)

        x = reader(op, compute(op, shape, inside, "pad"))
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
    (sh, sw), (ph, pw) = op.stride, op.pad
    th, tw = -(-op.r // sh), -(-op.s // sw)
    rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        p, q = (y + ph) // sh - rr, (z + pw) // sw - rs
        r, s = (y + ph) % sh + rr * sh, (z + pw) % sw + rs * sw
        inside = te.all(p >= 0, p < op.oh, q >= 0, q < op.ow, r < op.r, s < op.s)
        hit = te.if_then_else(inside, index(b, i, p, q), te.const(-1, "int32")) == r * op.s + s
        return te.if_then_else(te.all(inside, hit), dy(b, i, p, q), zero())

    shape = (op.n, op.c, op.h, op.w)
    return [compute(op, shape, lambda b, i, y, z: te.sum(value(b, i, y, z), axis=[rr, rs]), "dx")]


@formulation("global_avg_pool", "forward", "direct")
def avg_pool_forward(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    x = reader(op, inputs[0])
    rj = te.reduce_axis((0, op.s), "rj")
    total = te.compute((op.n, op.c), lambda b, i: te.sum(x(b, i, rj), axis=rj), name="total")
    return [
        te.compute(
            (op.n, op.c), lambda b, i: total[b, i] * te.const(1.0 / op.s, "float32"), name="y"
        )
    ]


@formulation("global_avg_pool", "data_grad", "direct")
def avg_pool_data_grad(op: GlobalAvgPool, inputs: Tensors) -> Tensors:
    (dy,) = inputs
    share = te.const(1.0 / op.s, "float32")
    return [compute(op, (op.n, op.c, op.s), lambda b, i, j: dy[b, i] * share, "dx")]


def _starts(op: Concat) -> list[int]:
    """First channel of each part in the joined tensor."""
    return list(accumulate(op.parts, initial=0))[:-1]


@formulation("concat", "forward", "direct")
def concat_forward(op: Concat, inputs: Tensors) -> Tensors:
    def value(b: Any, i: Any, j: Any) -> Any:
        parts = [reader(op, tensor) for tensor in inputs]
        *earlier, last = zip(parts, _starts(op), op.parts, strict=True)
        part, start, _ = last
        result = part(b, i - start, j)
        for part, start, channels in reversed(earlier):
            result = te.if_then_else(i < start + channels, part(b, i - start, j), result)
        return result

    return [compute(op, (op.n, sum(op.parts), op.s), value, "y")]


@formulation("concat", "data_grad", "direct")
def concat_data_grad(op: Concat, inputs: Tensors) -> Tensors:
    dy = reader(op, inputs[0])

    def part(name: str, start: int, channels: int) -> Any:
        return compute(op, (op.n, channels, op.s), lambda b, i, j: dy(b, i + start, j), f"d{name}")

    return [
        part(name, start, channels)
        for name, start, channels in zip("abcd", _starts(op), op.parts, strict=False)
    ]
