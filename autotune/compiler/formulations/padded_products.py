"""Matrix products whose columns fill no vectors, such as those of 65 tokens: zeros fill the last vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.marks import APART, REGISTER_PRODUCT
from autotune.compiler.formulations.register_products import RULE
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Bmm, Matmul

_VECTOR = 8
_FEWEST_COLUMNS = 5
"""Fewest columns, so that less than half of a vector is zeros."""
_FEWEST_ROWS = 4
NAME = "padded_product"
Read = Callable[..., Any]


def _pads(columns: str, rows: str) -> Callable[[Any], bool]:
    def applies(op: Any) -> bool:
        wide, high = getattr(op, columns), getattr(op, rows)
        return bool(wide % _VECTOR and wide >= _FEWEST_COLUMNS and high >= _FEWEST_ROWS)

    return applies


def _product(
    shape: tuple[int, ...], depth: int, left: Read, right: Read, name: str, dtype: str
) -> Tensors:
    """Returns the product of two matrices, or of as many as the first axes of the shape.

    Args:
        shape: Shape of the result. The last axes are rows and columns.
        depth: Steps of the reduction.
        left: Reads the first operand at [..., row, step].
        right: Reads the second operand at [..., step, column].
        name: Name of the result.
        dtype: Element type.
    """
    *outer, rows, columns = shape
    wide = -(-columns // _VECTOR) * _VECTOR
    step = te.reduce_axis((0, depth), "step")

    def padded(*at: Any) -> Any:
        value = right(*at[:-1], te.min(at[-1], columns - 1))
        return tirx.Select(at[-1] < columns, value, te.const(0.0, dtype))

    copy = te.compute((*outer, depth, wide), padded, name="columns")
    sums = te.compute(
        (*outer, rows, wide),
        lambda *at: te.sum(left(*at[:-1], step) * copy[(*at[:-2], step, at[-1])], axis=step),
        name="sums",
        attrs={REGISTER_PRODUCT: APART},
    )
    return [te.compute(shape, lambda *at: sums[at], name=name)]


@formulation("matmul", "forward", NAME, rule=RULE, applies=_pads("n", "m"))
def forward(mm: Matmul, inputs: Tensors) -> Tensors:
    x, weight = inputs
    return _product(
        (mm.m, mm.n), mm.k, lambda i, r: x[i, r], lambda r, j: weight[j, r], "y", x.dtype
    )


@formulation("matmul", "data_grad", NAME, rule=RULE, applies=_pads("k", "m"))
def data_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    dy, weight = inputs
    return _product(
        (mm.m, mm.k), mm.n, lambda i, r: dy[i, r], lambda r, j: weight[r, j], "dx", dy.dtype
    )


@formulation("matmul", "weight_grad", NAME, rule=RULE, applies=_pads("k", "n"))
def weight_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    x, dy = inputs
    return _product(
        (mm.n, mm.k), mm.m, lambda i, r: dy[r, i], lambda r, j: x[r, j], "dweight", dy.dtype
    )


@formulation("bmm", "forward", NAME, rule=RULE, applies=_pads("n", "m"))
def batched_forward(op: Bmm, inputs: Tensors) -> Tensors:
    x, weight = inputs
    return _product(
        (op.b, op.m, op.n),
        op.k,
        lambda b, i, r: x[b, i, r],
        lambda b, r, j: weight[b, j, r],
        "y",
        x.dtype,
    )


@formulation("bmm", "data_grad", NAME, rule=RULE, applies=_pads("k", "m"))
def batched_data_grad(op: Bmm, inputs: Tensors) -> Tensors:
    dy, weight = inputs
    return _product(
        (op.b, op.m, op.k),
        op.n,
        lambda b, i, r: dy[b, i, r],
        lambda b, r, j: weight[b, r, j],
        "dx",
        dy.dtype,
    )


@formulation("bmm", "weight_grad", NAME, rule=RULE, applies=_pads("k", "n"))
def batched_weight_grad(op: Bmm, inputs: Tensors) -> Tensors:
    x, dy = inputs
    return _product(
        (op.b, op.n, op.k),
        op.m,
        lambda b, i, r: dy[b, r, i],
        lambda b, r, j: x[b, r, j],
        "dweight",
        dy.dtype,
    )
