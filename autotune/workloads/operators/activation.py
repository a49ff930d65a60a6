"""Activations that are separate kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class Relu(Operator):
    """ReLU or ReLU6 without a bias or a batch norm before it; float32.

    forward: ``x[size] -> y[size]``; data_grad: ``y, dy -> dx``, which is ``dy`` where ``y > 0`` (and ``y < 6``),
    otherwise 0.

    Attributes:
        size: Number of elements.
        six: Whether it stops at 6.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "relu"

    size: int
    six: bool = False

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``size1024`` or ``size1024_six``."""
        return f"size{self.size}{'_six' if self.six else ''}"

    def streamed(self, role: Role) -> int | None:
        """Returns ``x`` or ``dy``."""
        return 0 if role == "forward" else 1

    def _signature(self, role: Role) -> Signature:
        flat = (self.size,)
        if role == "forward":
            return Signature((TensorSpec("x", flat),), (TensorSpec("y", flat),))
        return Signature((TensorSpec("y", flat), TensorSpec("dy", flat)), (TensorSpec("dx", flat),))

    def _flops(self, role: Role) -> int:
        return self.size * (2 if self.six else 1)
