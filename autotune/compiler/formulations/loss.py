"""Softmax cross-entropy over class logits, and its gradient."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import CrossEntropy


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
def forward(op: CrossEntropy, inputs: Tensors) -> Tensors:
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
def data_grad(op: CrossEntropy, inputs: Tensors) -> Tensors:
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
