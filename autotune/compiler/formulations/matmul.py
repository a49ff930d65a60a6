"""Fully connected layers and their gradients: y = x w^T, dx = dy w, dw = dy^T x.

Shapes: x[m,k], weight[n,k], y[m,n] (m batch, n output features, k input features); the same for each matrix of a
batched product.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Attributes, Tensors, formulation
from autotune.workloads.operators import Bmm, Matmul


def _lanes(extent: int) -> int:
    """Returns the width of the widest vector, up to 16 lanes, that divides the extent."""
    return next(lanes for lanes in (16, 8, 4, 2, 1) if extent % lanes == 0)


@formulation("matmul", "forward", "direct")
def forward(mm: Matmul, inputs: Tensors) -> Tensors:
    x, weight = inputs
    rk = te.reduce_axis((0, mm.k), "rk")
    return [
        te.compute((mm.m, mm.n), lambda i, j: te.sum(x[i, rk] * weight[j, rk], axis=rk), name="y")
    ]


@formulation("matmul", "forward", "lanes", applies=lambda mm: _lanes(mm.k) > 1)
def forward_lanes(mm: Matmul, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """Keeps a vector of partial sums along the contiguous reduction axis, and adds up its lanes at the end.

    `attrs` are marks of the block that multiplies.
    """
    x, weight = inputs
    lanes = _lanes(mm.k)
    rk, lane = te.reduce_axis((0, mm.k // lanes), "rk"), te.reduce_axis((0, lanes), "lane")
    partial = te.compute(
        (mm.m, mm.n, lanes),
        lambda i, j, v: te.sum(x[i, rk * lanes + v] * weight[j, rk * lanes + v], axis=rk),
        name="y_lanes",
        attrs=attrs,
    )
    return [te.compute((mm.m, mm.n), lambda i, j: te.sum(partial[i, j, lane], axis=lane), name="y")]


@formulation("matmul", "forward", "packed")
def forward_packed(mm: Matmul, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """Transposes the weight once, so that the output feature is the contiguous axis. `attrs` are marks."""
    x, weight = inputs
    packed = te.compute((mm.k, mm.n), lambda i, j: weight[j, i], name="weight_kn")
    rk = te.reduce_axis((0, mm.k), "rk")
    return [
        te.compute(
            (mm.m, mm.n),
            lambda i, j: te.sum(x[i, rk] * packed[rk, j], axis=rk),
            name="y",
            attrs=attrs,
        )
    ]


@formulation("matmul", "data_grad", "direct")
def data_grad(mm: Matmul, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dx[m, k] = dy[m, n] x weight[n, k]; `attrs` are marks of the block."""
    dy, weight = inputs
    rn = te.reduce_axis((0, mm.n), "rn")

    def value(i: Any, j: Any) -> Any:
        return te.sum(dy[i, rn] * weight[rn, j], axis=rn)

    return [te.compute((mm.m, mm.k), value, name="dx", attrs=attrs)]


@formulation("matmul", "weight_grad", "direct")
def weight_grad(mm: Matmul, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dweight[n, k] = dy[m, n] x x[m, k], summed over m; `attrs` are marks of the block."""
    x, dy = inputs
    rm = te.reduce_axis((0, mm.m), "rm")

    def value(i: Any, j: Any) -> Any:
        return te.sum(dy[rm, i] * x[rm, j], axis=rm)

    return [te.compute((mm.n, mm.k), value, name="dweight", attrs=attrs)]


@formulation("bmm", "forward", "direct")
def bmm_forward(op: Bmm, inputs: Tensors) -> Tensors:
    x, weight = inputs
    rk = te.reduce_axis((0, op.k), "rk")
    return [
        te.compute(
            (op.b, op.m, op.n),
            lambda b, i, j: te.sum(x[b, i, rk] * weight[b, j, rk], axis=rk),
            name="y",
        )
    ]


def bmm_forward_packed(op: Bmm, inputs: Tensors, attrs: Attributes) -> Tensors:
    """Transposes each second matrix, so that the result's columns are contiguous. `attrs` are marks."""
    x, weight = inputs
    packed = te.compute((op.b, op.k, op.n), lambda b, i, j: weight[b, j, i], name="weight_kn")
    rk = te.reduce_axis((0, op.k), "rk")
    return [
        te.compute(
            (op.b, op.m, op.n),
            lambda b, i, j: te.sum(x[b, i, rk] * packed[b, rk, j], axis=rk),
            name="y",
            attrs=attrs,
        )
    ]


@formulation("bmm", "data_grad", "direct")
def bmm_data_grad(op: Bmm, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dx[b, m, k] = dy[b, m, n] x weight[b, n, k]; `attrs` are marks of the block."""
    dy, weight = inputs
    rn = te.reduce_axis((0, op.n), "rn")
    return [
        te.compute(
            (op.b, op.m, op.k),
            lambda b, i, j: te.sum(dy[b, i, rn] * weight[b, rn, j], axis=rn),
            name="dx",
            attrs=attrs,
        )
    ]


@formulation("bmm", "weight_grad", "direct")
def bmm_weight_grad(op: Bmm, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dweight[b, n, k] = dy[b, m, n] x x[b, m, k], summed over m; `attrs` are marks of the block."""
    x, dy = inputs
    rm = te.reduce_axis((0, op.m), "rm")
    return [
        te.compute(
            (op.b, op.n, op.k),
            lambda b, i, j: te.sum(dy[b, rm, i] * x[b, rm, j], axis=rm),
            name="dweight",
            attrs=attrs,
        )
    ]
