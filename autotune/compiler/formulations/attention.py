"""Scaled dot-product attention and its gradients, strip by strip.

A strip has the scores of some neighbouring queries with all keys. For the gradients of keys and values, it has
those of some neighbouring keys with all queries. Every formulation has the same stages: products that make the
strip, functions of its scores, and products with it. In the `direct` formulation a strip has all rows. The rules
`attention` and `group_attention` compute short strips, so that no more of the scores is ever in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.layouts import rounded_up
from autotune.compiler.formulations.registry import ATTENTION, Tensors, formulation
from autotune.workloads.operators import Attention

RULE, GROUP_RULE = "attention", "group_attention"
"""Kinds of the rules for processors and for OpenCL devices."""
LANES = 16
"""Elements of a vector that a strip's rows are padded to."""
_LOW = -1e30
"""A number whose exponential is 0."""
_BLOCK = 32
"""Queries and keys of a block of causal scores that is left out as a whole."""
ROWS = 4
"""Neighbouring rows that the number of rows is padded to."""


def _float(value: float) -> Any:
    return te.const(value, "float32")


class _Stages:
    """What the roles have in common.

    Args:
        op: The attention.
        inputs: Its operands.
        cut: Whether it is for strips: the number of rows and their length are padded, and operands that are read
            across are copied so that rows of theirs are contiguous.
        products: Number of products that make a strip.
    """

    def __init__(self, op: Attention, inputs: Tensors, products: int, *, cut: bool) -> None:
        self.op, self.cut = op, cut
        self.q, self.k, self.v, *rest = inputs
        self.mask = rest.pop(0) if op.masked else None
        self.rest = rest
        self.lanes = LANES if cut else 1
        self.scale = _float(1.0 / math.sqrt(op.d))
        self.marks = {ATTENTION: [op.d, products]} if cut else None

    def padded(self, size: int, to: int) -> int:
        return rounded_up(size, to) if self.cut else size

    def across(self, name: str, tensor: Any, size: int) -> Callable[..., Any]:
        """Returns a function that reads an operand at [b, head, element, token]; the tokens are neighbours."""
        if not self.cut:
            return lambda b, head, c, i: tensor[b, i, head, c]
        heads = int(tensor.shape[2])
        shape = (self.op.b, heads, self.op.d, self.padded(size, self.lanes))
        copy = te.compute(
            shape, lambda b, head, c, i: tensor[b, _within(i, size, shape[3]), head, c], name=name
        )
        return lambda b, head, c, i: copy[b, head, c, i]

    def products(
        self,
        name: str,
        shape: tuple[int, ...],
        left: Callable[..., Any],
        right: Callable[..., Any],
        *,
        by_query: bool = True,
    ) -> Any:
        """Returns the sums over the elements of a head of what two functions read at [element, *index]."""
        c = te.reduce_axis((0, self.op.d), f"c_{name}")

        def summed(*at: Any) -> Any:
            query, key = (at[-2], at[-1]) if by_query else (at[-1], at[-2])
            return te.sum(self.where_seen(query, key, left(c, *at) * right(c, *at)), axis=c)

        return te.compute(shape, summed, name=name)

    def where_seen(self, query: Any, key: Any, value: Any) -> Any:
        """Returns a value; 0 in blocks of causal scores that no query of theirs sees, which then cost nothing."""
        if not (self.cut and self.op.causal):
            return value
        return te.if_then_else(key // _BLOCK <= query // _BLOCK, value, _float(0.0))

    def score(self, score: Any, b: Any, head: Any, i: Any, j: Any) -> Any:
        """Returns a score after scale and mask. Beyond the last query or key, that one is taken again."""
        op = self.op
        scaled = score * self.scale
        if self.mask is None:
            return scaled
        sample, of_head = (
            at if size > 1 else 0 for at, size in zip((b, head), op.mask, strict=True)
        )
        row = 0 if op.same_for_all else te.min(i, op.t - 1)
        return scaled + self.mask[sample, of_head, row, te.min(j, op.s - 1)]

    def gradient(
        self, score: Any, dp: Any, at: tuple[Any, ...], queries: int, keys: int
    ) -> tuple[Any, Any]:
        """Returns ``p``, computed again, and the gradient of a score at [b, head, i, j]."""
        lse, delta, _ = self.rest
        b, head, i, j = at
        row = (b, head, te.min(i, self.op.t - 1))
        hidden = _hidden(self.unseen(i, j, queries, keys))
        p = te.exp(self.score(score, b, head, i, j) - lse[row] + hidden)
        return p, p * (dp - delta[row]) * self.scale

    def with_strip(self, strip: Any, values: Any) -> Any:
        """Returns the products of a strip with an operand [b, key, head, element], as [b, query, head, element]."""
        b, h, rows, keys = strip.shape
        key = te.reduce_axis((0, keys), "key")

        def summed(n: Any, i: Any, e: Any, c: Any) -> Any:
            value = values[n, _within(key, self.op.s, int(keys)), e // self.op.shared, c]
            return te.sum(self.where_seen(i, key, strip[n, e, i, key] * value), axis=key)

        return te.compute((b, rows, h, self.op.d), summed, name="acc")

    def unseen(self, i: Any, j: Any, queries: int, keys: int) -> list[Any]:
        """Returns conditions under which query i does not see key j, in a strip of padded sizes."""
        op = self.op
        return [
            *([j > i] if op.causal else []),
            *([j >= op.s] if keys > op.s else []),
            *([i >= op.t] if queries > op.t else []),
        ]


def _within(i: Any, size: int, padded: int) -> Any:
    return te.min(i, size - 1) if padded > size else i


def _hidden(conditions: list[Any]) -> Any:
    """Returns what to add to a score: a number whose exponential is 0 under any of the conditions.

    A selection between scores would not do. TVM's simplifier takes away what keeps an index within its tensor if a
    condition implies it, but both values of a selection are computed.
    """
    added: Any = _float(0.0)
    for condition in conditions:
        added = tirx.Select(condition, _float(_LOW), added)
    return added


def _forward(op: Attention, inputs: Tensors, *, cut: bool) -> Tensors:
    stages = _Stages(op, inputs, 1, cut=cut)
    q, v = stages.q, stages.v
    b, h, t, lanes, r = op.b, op.h, op.t, stages.lanes, op.shared
    rows, keys = stages.padded(t, ROWS), stages.padded(op.s, lanes)
    k = stages.across("k_across", stages.k, op.s)
    scores = stages.products(
        "scores",
        (b, h, rows, keys),
        lambda c, n, e, i, j: q[n, _within(i, t, rows), e, c],
        lambda c, n, e, i, j: k(n, e // r, c, j),
    )

    def seen(n: Any, e: Any, i: Any, j: Any) -> Any:
        score = stages.score(scores[n, e, i, j], n, e, i, j)
        return score + _hidden([j > i]) if op.causal else score

    strip = te.compute((b, h, rows, keys), seen, name="strip", attrs=stages.marks)
    peaks = _by_lane("peaks", strip, lanes, te.max)
    top = _over_lanes("top", peaks, te.max)

    def exponential(n: Any, e: Any, i: Any, j: Any) -> Any:
        unseen = stages.unseen(i, j, t, keys)
        return te.exp(strip[n, e, i, j] - top[n, e, i] + _hidden(unseen))

    p = te.compute((b, h, rows, keys), exponential, name="p")
    sums = _by_lane("sums", p, lanes, te.sum)
    total = _over_lanes("total", sums, te.sum)
    some = te.compute(
        (b, h, rows),
        lambda n, e, i: tirx.Select(total[n, e, i] > _float(0.0), total[n, e, i], _float(1.0)),
        name="some",
    )
    acc = stages.with_strip(p, v)
    o = te.compute((b, t, h, op.d), lambda n, i, e, c: acc[n, i, e, c] / some[n, e, i], name="o")
    lse = te.compute(
        (b, h, t),
        lambda n, e, i: tirx.Select(
            total[n, e, i] > _float(0.0), top[n, e, i] + te.log(some[n, e, i]), _float(0.0)
        ),
        name="lse",
    )
    return [o, lse]


def _by_lane(name: str, strip: Any, lanes: int, combined: Callable[..., Any]) -> Any:
    """Returns what a strip's rows come to, lane by lane of their vectors."""
    b, h, rows, length = strip.shape
    vector = te.reduce_axis((0, length // lanes), f"vector_{name}")
    return te.compute(
        (b, h, rows, lanes),
        lambda n, e, i, lane: combined(strip[n, e, i, vector * lanes + lane], axis=vector),
        name=name,
    )


def _over_lanes(name: str, parts: Any, combined: Callable[..., Any]) -> Any:
    b, h, rows, lanes = parts.shape
    lane = te.reduce_axis((0, lanes), f"lane_{name}")
    return te.compute(
        (b, h, rows), lambda n, e, i: combined(parts[n, e, i, lane], axis=lane), name=name
    )


def _data_grad(op: Attention, inputs: Tensors, *, cut: bool) -> Tensors:
    stages = _Stages(op, inputs, 2, cut=cut)
    q, do = stages.q, stages.rest[-1]
    b, h, t, r = op.b, op.h, op.t, op.shared
    rows, keys = stages.padded(t, ROWS), stages.padded(op.s, stages.lanes)
    k, v = stages.across("k_across", stages.k, op.s), stages.across("v_across", stages.v, op.s)
    shape = (b, h, rows, keys)
    scores = stages.products(
        "scores", shape,
        lambda c, n, e, i, j: q[n, _within(i, t, rows), e, c], lambda c, n, e, i, j: k(n, e // r, c, j),
    )  # fmt: skip
    dp = stages.products(
        "dp", shape,
        lambda c, n, e, i, j: do[n, _within(i, t, rows), e, c], lambda c, n, e, i, j: v(n, e // r, c, j),
    )  # fmt: skip

    def ds(n: Any, e: Any, i: Any, j: Any) -> Any:
        at = (n, e, i, j)
        return stages.gradient(scores[at], dp[at], at, t, keys)[1]

    strip = te.compute(shape, ds, name="strip", attrs=stages.marks)
    acc = stages.with_strip(strip, stages.k)
    return [te.compute((b, t, h, op.d), lambda *at: acc[at], name="dq")]


def _weight_grad(op: Attention, inputs: Tensors, *, cut: bool, apart: bool = False) -> Tensors:
    """The strip of each key has two rows for every head of queries: the scores' gradients, and ``p``.

    Args:
        op: The attention.
        inputs: Its operands.
        cut: Whether it is for strips.
        apart: Whether each head of queries has strips and results of its own, which are added up at the end.
    """
    stages = _Stages(op, inputs, 2, cut=cut)
    k, v, do = stages.k, stages.v, stages.rest[-1]
    b, s = op.b, op.s
    heads, r = (op.h, 1) if apart else (op.g, op.shared)
    of_keys = op.shared if apart else 1
    rows, queries = stages.padded(s, ROWS), stages.padded(op.t, stages.lanes)
    q = stages.across("q_across", stages.q, op.t)
    dy = stages.across("do_across", do, op.t)
    shape = (b, heads, r, rows, queries)
    scores = stages.products(
        "scores", shape,
        lambda c, n, f, m, j, i: k[n, _within(j, s, rows), f // of_keys, c],
        lambda c, n, f, m, j, i: q(n, f * r + m, c, i), by_query=False,
    )  # fmt: skip
    dp = stages.products(
        "dp", shape,
        lambda c, n, f, m, j, i: v[n, _within(j, s, rows), f // of_keys, c],
        lambda c, n, f, m, j, i: dy(n, f * r + m, c, i), by_query=False,
    )  # fmt: skip

    def both(n: Any, f: Any, m: Any, j: Any, which: Any, i: Any) -> Any:
        at = (n, f * r + m, i, j)
        p, ds = stages.gradient(scores[n, f, m, j, i], dp[n, f, m, j, i], at, queries, s)
        return te.if_then_else(which == 0, ds, p)

    strip = te.compute((b, heads, r, rows, 2, queries), both, name="strip", attrs=stages.marks)
    head, query = te.reduce_axis((0, r), "head"), te.reduce_axis((0, queries), "query")

    def summed(which: Any, n: Any, j: Any, f: Any, c: Any) -> Any:
        at = (n, _within(query, op.t, queries), f * r + head, c)
        other = te.if_then_else(which == 0, stages.q[at], do[at])
        value = strip[n, f, head, j, which, query] * other
        return te.sum(stages.where_seen(query, j, value), axis=[head, query])

    acc = te.compute((2, b, rows, heads, op.d), summed, name="acc")
    result = te.compute((2, b, s, heads, op.d), lambda *at: acc[at], name="dkv")
    if of_keys == 1:
        return [result]
    one = te.reduce_axis((0, of_keys), "one")

    def of_group(which: Any, n: Any, j: Any, f: Any, c: Any) -> Any:
        return te.sum(result[which, n, j, f * of_keys + one, c], axis=one)

    return [te.compute((2, b, s, op.g, op.d), of_group, name="of_group")]


def _fits(op: Attention) -> bool:
    return op.d % 8 == 0


@formulation("attention", "forward", "direct")
def forward(op: Attention, inputs: Tensors) -> Tensors:
    return _forward(op, inputs, cut=False)


@formulation("attention", "forward", "strips", rule=RULE, applies=_fits)
@formulation("attention", "forward", "group_strips", rule=GROUP_RULE, applies=_fits)
def forward_in_strips(op: Attention, inputs: Tensors) -> Tensors:
    return _forward(op, inputs, cut=True)


@formulation("attention", "data_grad", "direct")
def data_grad(op: Attention, inputs: Tensors) -> Tensors:
    return _data_grad(op, inputs, cut=False)


@formulation("attention", "data_grad", "strips", rule=RULE, applies=_fits)
@formulation("attention", "data_grad", "group_strips", rule=GROUP_RULE, applies=_fits)
def data_grad_in_strips(op: Attention, inputs: Tensors) -> Tensors:
    return _data_grad(op, inputs, cut=True)


@formulation("attention", "weight_grad", "direct")
def weight_grad(op: Attention, inputs: Tensors) -> Tensors:
    return _weight_grad(op, inputs, cut=False)


@formulation("attention", "weight_grad", "strips", rule=RULE, applies=_fits)
def weight_grad_in_strips(op: Attention, inputs: Tensors) -> Tensors:
    return _weight_grad(op, inputs, cut=True)


@formulation("attention", "weight_grad", "group_strips", rule=GROUP_RULE, applies=_fits)
def weight_grad_in_groups(op: Attention, inputs: Tensors) -> Tensors:
    return _weight_grad(op, inputs, cut=True, apart=op.shared > 1)
