"""The training loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class CrossEntropy(Operator):
    """Softmax and cross entropy, averaged over the batch; float32, labels int32.

    forward: ``logits[n,classes], labels[n] -> loss[1]``; data_grad:
    ``logits, labels -> dlogits = (softmax(logits) - onehot(labels)) / n``.

    Attributes:
        n: Batch.
        classes: Number of classes; labels are in ``0 .. classes - 1``.
        of: Number of samples of the mean, if these are part of a larger batch; 0 for ``n``.

    Raises:
        UsageError: On construction, if a size is below 1.
    """

    name: ClassVar[str] = "cross_entropy"
    may_be_zero: ClassVar[frozenset[str]] = frozenset(("of",))

    n: int
    classes: int
    of: int = 0

    @property
    def samples(self) -> int:
        """Number of samples that the mean is over."""
        return self.of or self.n

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``n8classes10``."""
        return f"n{self.n}classes{self.classes}{f'of{self.of}' if self.of else ''}"

    def _signature(self, role: Role) -> Signature:
        table = (self.n, self.classes)
        inputs = (TensorSpec("logits", table), TensorSpec("labels", (self.n,), "int32"))
        output = TensorSpec("loss", (1,)) if role == "forward" else TensorSpec("dlogits", table)
        return Signature(inputs, (output,))

    def _flops(self, role: Role) -> int:
        # Maximum, subtraction, exponential and sum; the gradient also has a division.
        return self.n * self.classes * (4 if role == "forward" else 5)
