"""Reference of attention, head by head: scores of one head at a time are in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import Attention, Role

Array = NDArray[np.float64]


def attention(operator: Attention, role: Role, inputs: Sequence[Array]) -> list[Array]:
    """Returns the results of a role, float64; see ``Attention`` for operands and results."""
    q, k, v, *rest = inputs
    mask = rest.pop(0) if operator.masked else None
    o, lse = np.zeros_like(q), np.zeros((operator.b, operator.h, operator.t))
    dq, dkv = np.zeros_like(q), np.zeros((2, *k.shape))
    for b in range(operator.b):
        for head in range(operator.h):
            at = (b, slice(None), head // operator.shared)
            scores = _scores(operator, q[b, :, head], k[at], _of_head(operator, mask, b, head))
            if role == "forward":
                top = scores.max(axis=1, keepdims=True)
                p = np.exp(scores - np.where(top > -np.inf, top, 0.0))
                total = p.sum(axis=1, keepdims=True)
                total[total == 0] = 1.0
                lse[b, head] = (np.where(top > -np.inf, top, 0.0) + np.log(total))[:, 0]
                o[b, :, head] = p @ v[at] / total
                continue
            given, delta, do = rest[0][b, head], rest[1][b, head], rest[2][b, :, head]
            p = np.exp(scores - given[:, None])
            ds = p * (do @ v[at].T - delta[:, None]) / np.sqrt(operator.d)
            dq[b, :, head] = ds @ k[at]
            dkv[(0, *at)] += ds.T @ q[b, :, head]
            dkv[(1, *at)] += p.T @ do
    return {"forward": [o, lse], "data_grad": [dq]}.get(role, [dkv])


def _scores(operator: Attention, q: Array, k: Array, mask: Array | None) -> Array:
    scores: Array = q @ k.T / np.sqrt(operator.d)
    if mask is not None:
        scores = scores + mask
    if operator.causal:
        later = np.arange(operator.s)[None, :] > np.arange(operator.t)[:, None]
        scores = np.where(later, -np.inf, scores)
    return scores


def _of_head(operator: Attention, mask: Array | None, b: int, head: int) -> Array | None:
    if mask is None:
        return None
    found: Array = mask[b % operator.mask[0], head % operator.mask[1]]
    return found
