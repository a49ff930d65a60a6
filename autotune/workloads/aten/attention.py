"""Scaled dot-product attention as PyTorch computes it on a processor, with its gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from autotune.workloads.aten.contractions import whole
from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import pointwise
from autotune.workloads.aten.program import Operation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.values import Shape, Strided, Value, contiguous, expanded
from autotune.workloads.expressions import apply, number
from autotune.workloads.operators import Attention

_TOKENS_FIRST = (0, 2, 1, 3)
"""The order in memory of [batch, heads, tokens, elements]: that of a linear layer's result."""
_NAME = "_scaled_dot_product_flash_attention_for_cpu"


@lowers(f"{_NAME}.default")
def _attention(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    op, operands = _operands(lowering, operation)
    rows = (op.b, op.h, op.t)
    o, lse = lowering.call(op, "forward", operands, (op.b, op.t, op.h, op.d), rows)
    return whole(o, operation.shapes[0], _TOKENS_FIRST), whole(lse, rows)


@lowers(f"{_NAME}_backward.default")
def _attention_backward(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    op, operands = _operands(lowering, operation)
    do, o, lse = (
        lowering.value(operation.arguments[name]) for name in ("grad_out", "out", "logsumexp")
    )
    wide = (op.b, op.h, op.t, op.d)
    products = pointwise(lowering, wide, "float32", lambda a, b: apply("mul", a, b), o, do)
    delta = lowering.reduce("sum", products, [3])
    operands += [lowering.stored(lse), delta, lowering.stored(do, _TOKENS_FIRST)]
    (dq,) = lowering.call(op, "data_grad", operands, (op.b, op.t, op.h, op.d))
    keys = (op.b, op.s, op.g, op.d)
    (dkv,) = lowering.call(op, "weight_grad", operands, (2, *keys))
    shape = (op.b, op.g, op.s, op.d)
    dk = Strided(dkv, 2 * math.prod(keys), shape, contiguous(shape, _TOKENS_FIRST), 0, "float32")
    dv = replace(dk, offset=math.prod(keys))
    return _scaled(lowering, operation, whole(dq, wide, _TOKENS_FIRST)), dk, dv


def _operands(lowering: Lowering, operation: Operation) -> tuple[Attention, list[Strided]]:
    """The operator and its first operands: queries, keys, values and the mask."""
    arguments = operation.arguments
    q, k, v = (lowering.value(arguments[name]) for name in ("query", "key", "value"))
    if arguments["dropout_p"]:
        raise lowering.refused(operation, "drops out by itself", "leave dropout_p at 0")
    b, h, t, d = q.shape
    _, g, s, _ = k.shape
    q = _scaled(lowering, operation, q)
    operands = [lowering.stored(one, _TOKENS_FIRST) for one in (q, k, v)]
    given = arguments.get("attn_mask")
    if given is None:
        return Attention(b, t, s, h, g, d, bool(arguments["is_causal"])), operands
    mask = lowering.value(given)
    shape = (*[1] * (4 - len(mask.shape)), *mask.shape)
    kept: Shape = (shape[0], shape[1], shape[2] if shape[2] == 1 else t, s)
    operands.append(lowering.stored(expanded(mask, kept)))
    op = Attention(
        b, t, s, h, g, d, bool(arguments["is_causal"]), (kept[0], kept[1]), kept[2] == 1 < t
    )
    return op, operands


def _scaled(lowering: Lowering, operation: Operation, value: Value) -> Value:
    """The queries, or their gradient, where the scores are not divided by the root of a head's length."""
    given: Any = operation.arguments.get("scale")
    factor = 1.0 if given is None else given * math.sqrt(value.shape[-1])
    if math.isclose(factor, 1.0, rel_tol=1e-6):
        return value
    return pointwise(
        lowering, value.shape, "float32", lambda x: apply("mul", x, number(factor)), value
    )
