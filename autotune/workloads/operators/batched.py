"""Batched matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class Bmm(Operator):
    """``b`` matrix products of one size, each as that of ``Matmul``, float32.

    forward: ``x[b,m,k], weight[b,n,k] -> y[b,m,n]``; data_grad: ``dy[b,m,n], weight[b,n,k] -> dx[b,m,k]``;
    weight_grad: ``x[b,m,k], dy[b,m,n] -> dweight[b,n,k]``.

    Attributes:
        b: Number of products.
        m: Rows of the result.
        n: Columns of the result.
        k: Length of the sums.

    Raises:
        UsageError: On construction, when a size is below 1.
    """

    name: ClassVar[str] = "bmm"

    b: int
    m: int
    n: int
    k: int

    def roles(self) -> tuple[Role, ...]:
        """Returns all but ``update``."""
        return ("forward", "data_grad", "weight_grad")

    def label(self) -> str:
        """Returns such as ``b12m128n128k64``."""
        return f"b{self.b}m{self.m}n{self.n}k{self.k}"

    def _signature(self, role: Role) -> Signature:
        x = TensorSpec("x", (self.b, self.m, self.k))
        weight = TensorSpec("weight", (self.b, self.n, self.k))
        y = TensorSpec("y", (self.b, self.m, self.n))
        if role == "forward":
            return Signature((x, weight), (y,))
        if role == "data_grad":
            return Signature((TensorSpec("dy", y.shape), weight), (TensorSpec("dx", x.shape),))
        return Signature((x, TensorSpec("dy", y.shape)), (TensorSpec("dweight", weight.shape),))

    def _flops(self, role: Role) -> int:
        return 2 * self.b * self.m * self.n * self.k
