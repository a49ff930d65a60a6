"""Batched matrix products: y = x w^T, dx = dy w, dw = dy^T x, for each matrix of a batch."""

from __future__ import annotations

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Bmm


@formulation("bmm", "forward", "direct")
def forward(op: Bmm, inputs: Tensors) -> Tensors:
    x, weight = inputs
    rk = te.reduce_axis((0, op.k), "rk")
    return [
        te.compute(
            (op.b, op.m, op.n),
            lambda b, i, j: te.sum(x[b, i, rk] * weight[b, j, rk], axis=rk),
            name="y",
        )
    ]


@formulation("bmm", "data_grad", "direct")
def data_grad(op: Bmm, inputs: Tensors) -> Tensors:
    dy, weight = inputs
    rn = te.reduce_axis((0, op.n), "rn")
    return [
        te.compute(
            (op.b, op.m, op.k),
            lambda b, i, j: te.sum(dy[b, i, rn] * weight[b, rn, j], axis=rn),
            name="dx",
        )
    ]


@formulation("bmm", "weight_grad", "direct")
def weight_grad(op: Bmm, inputs: Tensors) -> Tensors:
    x, dy = inputs
    rm = te.reduce_axis((0, op.m), "rm")
    return [
        te.compute(
            (op.b, op.n, op.k),
            lambda b, i, j: te.sum(dy[b, rm, i] * x[b, rm, j], axis=rm),
            name="dweight",
        )
    ]
