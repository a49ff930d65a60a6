"""Sums over channels, and concatenation: kernels that are limited by memory traffic."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.layouts import compute, reader
from autotune.compiler.formulations.registry import JOINED, ROWS, Attributes, Tensors, formulation
from autotune.workloads.operators import Bias, Concat, CrossEntropy

COLUMN_REDUCTION = "row_sums"
_LANES = 8
_BLOCKS = 64


@formulation("bias", "weight_grad", "direct")
def bias_weight_grad(op: Bias, inputs: Tensors) -> Tensors:
    dy = reader(op, inputs[0])
    rn, rj = te.reduce_axis((0, op.n), "rn"), te.reduce_axis((0, op.s), "rj")
    return [te.compute((op.c,), lambda i: te.sum(dy(rn, i, rj), axis=[rn, rj]), name="dbias")]


def in_vectors(operator: Any) -> bool:
    """Returns whether the channels are whole vectors, which the rule for column reductions needs to be fast."""
    return bool(operator.channels_last) and operator.c % _LANES == 0


@formulation("bias", "weight_grad", "planes", applies=lambda op: op.n > 1 and op.s > 1)
def bias_weight_grad_planes(op: Bias, inputs: Tensors) -> Tensors:
    """Sums each plane first, then sums over the batch: n times the parallel work of the direct form."""
    return [channel_sum(op.n, op.c, op.s, "dbias", reader(op, inputs[0]))]


@formulation("bias", "weight_grad", "row_sums", rule=COLUMN_REDUCTION, applies=in_vectors)
def bias_weight_grad_column_reduction(op: Bias, inputs: Tensors) -> Tensors:
    """Sums over rows at once, for the rule for column reductions."""
    return column_reduction(op, "dbias", reader(op, inputs[0]), marked=True)


def column_reduction(
    op: Any, name: str, *values: Callable[[Any, Any, Any], Any], marked: bool
) -> list[Any]:
    """Sums several `value(b, i, j)` over batch and pixels at once, for channels-last operands.

    The rows, which are the pixels of the batch, are split into blocks that are summed on their own. If a value
    depends on another tensor by channel only, a block's loops can be tiled like those of a matrix product: channels
    are vectors, and all sums are computed while a tile of rows is in the cache. `marked` leaves this to the rule
    `COLUMN_REDUCTION`.
    """
    rows = op.n * op.s
    blocks = _blocks(rows)
    within, across = te.reduce_axis((0, rows // blocks), "rm"), te.reduce_axis((0, blocks), "rp")

    def value(p: Any, which: Any, i: Any) -> Any:
        row = p * (rows // blocks) + within
        results = [one(row // op.s, i, row % op.s) for one in values]
        chosen = results[-1]
        for number in reversed(range(len(results) - 1)):
            chosen = tirx.Select(which == number, results[number], chosen)
        return te.sum(chosen, axis=within)

    partial = te.compute(
        (blocks, len(values), op.c),
        value,
        name=f"{name}_blocks",
        attrs={ROWS: 1} if marked else {},
    )

    def total(which: int) -> Any:
        return te.compute(
            (op.c,),
            lambda i: te.sum(partial[across, which, i], axis=across),
            name=f"{name}{which}",
        )

    return [total(which) for which in range(len(values))]


def _blocks(rows: int) -> int:
    """Returns the divisor of the number of rows that is nearest to 64."""
    divisors = [d for d in range(1, min(rows, 4 * _BLOCKS) + 1) if rows % d == 0]
    return min(divisors, key=lambda d: abs(math.log(d / _BLOCKS)))


def channel_sum(n: int, c: int, s: int, name: str, value: Callable[[Any, Any, Any], Any]) -> Any:
    """Sums `value(b, i, j)` over batch and pixels, plane by plane: n * c sums can run in parallel."""
    rn, rj = te.reduce_axis((0, n), "rn"), te.reduce_axis((0, s), "rj")
    planes = te.compute(
        (n, c), lambda b, i: te.sum(value(b, i, rj), axis=rj), name=f"{name}_planes"
    )
    return te.compute((c,), lambda i: te.sum(planes[rn, i], axis=rn), name=name)


def _starts(op: Concat) -> list[int]:
    """Returns the first channel of each part in the joined tensor."""
    return list(accumulate(op.parts, initial=0))[:-1]


def _joined(op: Concat, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    def value(b: Any, i: Any, j: Any) -> Any:
        parts = [reader(op, tensor) for tensor in inputs]
        *earlier, last = zip(parts, _starts(op), op.parts, strict=True)
        part, start, _ = last
        result = part(b, i - start, j)
        for part, start, channels in reversed(earlier):
            result = te.if_then_else(i < start + channels, part(b, i - start, j), result)
        return result

    return [compute(op, (op.n, sum(op.parts), op.s), value, "y", attrs)]


@formulation("concat", "forward", "direct")
def concat_forward(op: Concat, inputs: Tensors) -> Tensors:
    return _joined(op, inputs)


def _parts_in_vectors(op: Concat) -> bool:
    return op.channels_last and math.gcd(*op.parts) % _LANES == 0


@formulation("concat", "forward", "joined_parts", rule="joined_parts", applies=_parts_in_vectors)
def concat_in_vectors(op: Concat, inputs: Tensors) -> Tensors:
    """Like `concat_forward`, for the rule that copies each part's channels in vectors."""
    return _joined(op, inputs, {JOINED: math.gcd(*op.parts)})


@formulation("concat", "data_grad", "direct")
def concat_data_grad(op: Concat, inputs: Tensors) -> Tensors:
    dy = reader(op, inputs[0])

    def part(name: str, start: int, channels: int) -> Any:
        return compute(op, (op.n, channels, op.s), lambda b, i, j: dy(b, i + start, j), f"d{name}")

    return [
        part(name, start, channels)
        for name, start, channels in zip("abcd", _starts(op), op.parts, strict=False)
    ]


def _shifted_exponentials(op: CrossEntropy, logits: Any) -> tuple[Any, Any, Any]:
    """Returns row maxima [n], exp(logits - maximum) [n,classes], and its row sums [n]."""
    rm, rs = te.reduce_axis((0, op.classes), "rm"), te.reduce_axis((0, op.classes), "rs")
    top = te.compute((op.n,), lambda i: te.max(logits[i, rm], axis=rm), name="top")
    exponent = te.compute(
        (op.n, op.classes), lambda i, j: te.exp(logits[i, j] - top[i]), name="exponent"
    )
    total = te.compute((op.n,), lambda i: te.sum(exponent[i, rs], axis=rs), name="total")
    return top, exponent, total


@formulation("cross_entropy", "forward", "direct")
def cross_entropy_forward(op: CrossEntropy, inputs: Tensors) -> Tensors:
    logits, labels = inputs
    top, _, total = _shifted_exponentials(op, logits)
    rc, rn = te.reduce_axis((0, op.classes), "rc"), te.reduce_axis((0, op.n), "rn")
    zero = te.const(0.0, "float32")
    picked = te.compute(
        (op.n,),
        lambda i: te.sum(tirx.Select(labels[i] == rc, logits[i, rc], zero), axis=rc),
        name="picked",
    )
    row = te.compute((op.n,), lambda i: te.log(total[i]) + top[i] - picked[i], name="row_loss")
    sum_ = te.compute((1,), lambda i: te.sum(row[rn], axis=rn), name="loss_sum")
    return [
        te.compute((1,), lambda i: sum_[i] * te.const(1.0 / op.samples, "float32"), name="loss")
    ]


@formulation("cross_entropy", "data_grad", "direct")
def cross_entropy_data_grad(op: CrossEntropy, inputs: Tensors) -> Tensors:
    logits, labels = inputs
    _, exponent, total = _shifted_exponentials(op, logits)
    one, zero = te.const(1.0, "float32"), te.const(0.0, "float32")
    scale = te.const(1.0 / op.samples, "float32")
    return [
        te.compute(
            (op.n, op.classes),
            lambda i, j: (
                (exponent[i, j] / total[i] - tirx.Select(labels[i] == j, one, zero)) * scale
            ),
            name="dlogits",
        )
    ]
