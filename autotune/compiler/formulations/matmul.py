"""Fully connected layers and their gradients: y = x w^T, dx = dy w, dw = dy^T x.

Shapes: x[m,k], weight[n,k], y[m,n] (m batch, n output features, k input features); the same for each matrix of a
batched product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import rounded_up
from autotune.compiler.formulations.registry import Attributes, Tensors, formulation
from autotune.workloads.operators import Bmm, Matmul


def _lanes(extent: int) -> int:
    """Returns the width of the widest vector, up to 16 lanes, that divides the extent."""
    return next(lanes for lanes in (16, 8, 4, 2, 1) if extent % lanes == 0)


def batch(op: Matmul | Bmm) -> tuple[int, ...]:
    """Returns the axes before rows and columns: the products of a batch, or none."""
    return (op.b,) if isinstance(op, Bmm) else ()


def turned(tensor: Any) -> Callable[..., Any]:
    """Returns a function that reads matrices at [..., column, row]."""
    return lambda *at: tensor[(*at[:-2], at[-1], at[-2])]


def padded_sums(
    shape: tuple[int, ...],
    steps: Sequence[Any],
    left: Callable[..., Any],
    right: Callable[..., Any],
    vector: int,
    dtype: str,
    attrs: Attributes,
) -> Any:
    """Returns products of matrices [..., row, column], with columns of zeros until they fill vectors.

    Args:
        shape: Shape of the products without these columns.
        steps: Axes of the reduction.
        left: Reads the first operand at [..., row, *steps].
        right: Reads the second operand at [..., *steps, column]; it is copied.
        vector: Elements of a vector.
        dtype: Element type.
        attrs: Marks of the block that multiplies.
    """
    *outer, rows, columns = shape
    wide = rounded_up(columns, vector)
    depths = [step.dom.extent for step in steps]

    def padded(*at: Any) -> Any:
        return te.if_then_else(at[-1] < columns, right(*at), te.const(0.0, dtype))

    copy = te.compute((*outer, *depths, wide), padded, name="columns")
    return te.compute(
        (*outer, rows, wide),
        lambda *at: te.sum(
            left(*at[:-1], *steps) * copy[(*at[:-2], *steps, at[-1])], axis=list(steps)
        ),
        name="sums",
        attrs=attrs,
    )


@formulation("bmm", "forward", "direct")
@formulation("matmul", "forward", "direct")
def forward(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    x, weight = inputs
    rk = te.reduce_axis((0, op.k), "rk")

    def value(*at: Any) -> Any:
        *outer, i, j = at
        return te.sum(x[(*outer, i, rk)] * weight[(*outer, j, rk)], axis=rk)

    return [te.compute((*batch(op), op.m, op.n), value, name="y")]


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
def forward_packed(op: Matmul | Bmm, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """Transposes the weight once, so that the output feature is the contiguous axis. `attrs` are marks."""
    x, weight = inputs
    packed = te.compute((*batch(op), op.k, op.n), turned(weight), name="weight_kn")
    rk = te.reduce_axis((0, op.k), "rk")

    def value(*at: Any) -> Any:
        *outer, i, j = at
        return te.sum(x[(*outer, i, rk)] * packed[(*outer, rk, j)], axis=rk)

    return [te.compute((*batch(op), op.m, op.n), value, name="y", attrs=attrs)]


@formulation("bmm", "data_grad", "direct")
@formulation("matmul", "data_grad", "direct")
def data_grad(op: Matmul | Bmm, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dx[..., m, k] = dy[..., m, n] x weight[..., n, k]; `attrs` are marks of the block."""
    dy, weight = inputs
    rn = te.reduce_axis((0, op.n), "rn")

    def value(*at: Any) -> Any:
        *outer, i, j = at
        return te.sum(dy[(*outer, i, rn)] * weight[(*outer, rn, j)], axis=rn)

    return [te.compute((*batch(op), op.m, op.k), value, name="dx", attrs=attrs)]


@formulation("bmm", "weight_grad", "direct")
@formulation("matmul", "weight_grad", "direct")
def weight_grad(op: Matmul | Bmm, inputs: Tensors, attrs: Attributes = None) -> Tensors:
    """dweight[..., n, k] = dy[..., m, n] x x[..., m, k], summed over m; `attrs` are marks of the block."""
    x, dy = inputs
    rm = te.reduce_axis((0, op.m), "rm")

    def value(*at: Any) -> Any:
        *outer, i, j = at
        return te.sum(dy[(*outer, rm, i)] * x[(*outer, rm, j)], axis=rm)

    return [te.compute((*batch(op), op.n, op.k), value, name="dweight", attrs=attrs)]
