"""Scaled dot-product attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import UsageError
from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class Attention(Operator):
    """Scaled dot-product attention with a batch of tokens, float32 (Vaswani et al., NeurIPS 2017).

    With ``scores = q k^T / sqrt(d) + mask`` and ``p = exp(scores - lse)``, ``lse`` the logarithm of the sum of
    ``exp(scores)`` over the keys:

    - forward: ``q[b,t,h,d], k[b,s,g,d], v[b,s,g,d], [mask,] -> o[b,t,h,d] = p v, lse[b,h,t]``;
    - data_grad: ``q, k, v, [mask,] lse, delta[b,h,t], do[b,t,h,d] -> dq``, where ``delta`` is the sum of ``o do``
      over ``d``;
    - weight_grad: the same operands ``-> dkv[2,b,s,g,d]``, the gradients of ``k`` and of ``v``.

    The gradients compute ``p`` again from ``lse`` (Dao et al., "FlashAttention", NeurIPS 2022). A query whose keys
    are all masked by -inf has zeros in ``o`` and ``lse``.

    Attributes:
        b: Batch.
        t: Queries of a sample.
        s: Keys of a sample.
        h: Heads of the queries.
        g: Heads of the keys and values, which ``h / g`` neighbouring heads of the queries share.
        d: Length of a head.
        causal: Whether query i sees only keys up to i.
        mask: Sizes of the mask's axes of batch and heads, ``mask[mb,mh,t,s]``, which is added to the scores; each
            is 1 or that of the queries. (0, 0) without a mask.
        same_for_all: Whether the mask is the same for all queries, ``mask[mb,mh,1,s]``.

    Raises:
        UsageError: On construction, if a size is below 1, ``g`` does not divide ``h``, or a mask does not fit.
    """

    name: ClassVar[str] = "attention"
    may_be_zero: ClassVar[frozenset[str]] = frozenset(("mask",))

    b: int
    t: int
    s: int
    h: int
    g: int
    d: int
    causal: bool = False
    mask: tuple[int, int] = (0, 0)
    same_for_all: bool = False

    @property
    def shared(self) -> int:
        """Heads of the queries that share a head of the keys."""
        return self.h // self.g

    @property
    def masked(self) -> bool:
        """Whether there is a mask."""
        return self.mask != (0, 0)

    def roles(self) -> tuple[Role, ...]:
        """Returns all but ``update``."""
        return ("forward", "data_grad", "weight_grad")

    def label(self) -> str:
        """Returns such as ``b4t128s128h12g12d64_causal``."""
        causal = "_causal" if self.causal else ""
        mask = f"_m{self.mask[0]}x{self.mask[1]}" if self.masked else ""
        mask += "_same" if self.same_for_all else ""
        return f"b{self.b}t{self.t}s{self.s}h{self.h}g{self.g}d{self.d}{causal}{mask}"

    def _check_shapes(self) -> None:
        if self.h % self.g:
            raise UsageError(
                f"attention: {self.g} heads of keys do not divide {self.h} heads of queries",
                hint="give a divisor of h for g",
            )
        if self.masked and not all(
            size in (1, whole) for size, whole in zip(self.mask, (self.b, self.h), strict=True)
        ):
            raise UsageError(
                f"attention: a mask of {self.mask[0]} samples and {self.mask[1]} heads does not fit",
                hint=f"give mask=1x1, {self.b}x1, 1x{self.h} or {self.b}x{self.h}",
            )
        if self.same_for_all and not self.masked:
            raise UsageError("attention: same_for_all goes with a mask", hint="give mask too")

    def _signature(self, role: Role) -> Signature:
        def wide(name: str) -> TensorSpec:
            return TensorSpec(name, (self.b, self.t, self.h, self.d))

        keys = (self.b, self.s, self.g, self.d)
        row = (self.b, self.h, self.t)
        operands: tuple[TensorSpec, ...] = (wide("q"), TensorSpec("k", keys), TensorSpec("v", keys))
        rows = 1 if self.same_for_all else self.t
        if self.masked:
            operands = (*operands, TensorSpec("mask", (*self.mask, rows, self.s)))
        if role == "forward":
            return Signature(operands, (wide("o"), TensorSpec("lse", row)))
        operands = (*operands, TensorSpec("lse", row), TensorSpec("delta", row), wide("do"))
        if role == "data_grad":
            return Signature(operands, (wide("dq"),))
        return Signature(operands, (TensorSpec("dkv", (2, *keys)),))

    def _flops(self, role: Role) -> int:
        products = {"forward": 2, "data_grad": 3}.get(role, 4)
        return 2 * products * self.b * self.h * self.t * self.s * self.d
