"""Fully connected layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class Matmul(Operator):
    """Fully connected layer without bias, float32. The weight is stored as in PyTorch.

    forward: ``x[m,k], weight[n,k] -> y[m,n]``; data_grad: ``dy[m,n], weight[n,k] -> dx[m,k]``;
    weight_grad: ``x[m,k], dy[m,n] -> dweight[n,k]``.

    Attributes:
        m: Batch.
        n: Output features.
        k: Input features.

    Raises:
        UsageError: On construction, if a size is below 1.
    """

    name: ClassVar[str] = "matmul"

    m: int
    n: int
    k: int

    def roles(self) -> tuple[Role, ...]:
        """Returns all roles except ``update``."""
        return ("forward", "data_grad", "weight_grad")

    def label(self) -> str:
        """Returns a text such as ``m8n120k400``."""
        return f"m{self.m}n{self.n}k{self.k}"

    def _signature(self, role: Role) -> Signature:
        x, weight, y = (self.m, self.k), (self.n, self.k), (self.m, self.n)
        if role == "forward":
            return Signature(
                (TensorSpec("x", x), TensorSpec("weight", weight)), (TensorSpec("y", y),)
            )
        if role == "data_grad":
            return Signature(
                (TensorSpec("dy", y), TensorSpec("weight", weight)), (TensorSpec("dx", x),)
            )
        return Signature(
            (TensorSpec("x", x), TensorSpec("dy", y)), (TensorSpec("dweight", weight),)
        )

    def _flops(self, role: Role) -> int:
        return 2 * self.m * self.n * self.k
