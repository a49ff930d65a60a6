"""A kernel that is described by an expression: element-wise work, reductions, windows, gathers and scatters."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from autotune.workloads.expressions import Described, read, replaced, summary, written
from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class Expression(Operator):
    """A described kernel; operands and results are float32 or int32.

    forward: ``in0, in1, ... -> out0, ...``; update: the same, where each result takes the place of the operand of
    the same number.

    Attributes:
        text: The canonical text of the kernel; see ``autotune.workloads.expressions``.

    Raises:
        UsageError: On construction, when the text is no such kernel.
    """

    name: ClassVar[str] = "expr"

    text: str

    def __post_init__(self) -> None:
        """Reads the text, and keeps it in its canonical form."""
        object.__setattr__(self, "text", written(self.kernel))

    @classmethod
    def of(cls, kernel: Described) -> Expression:
        """The operator of a described kernel."""
        return cls(written(kernel))

    @cached_property
    def kernel(self) -> Described:
        """What is computed."""
        return read(self.text)

    def spec(self) -> str:
        """Returns the canonical text, ``expr:(in f 4)(map 4 = (exp (at 0 a0)))(out 0)``."""
        return f"{self.name}:{self.text}"

    def short_name(self) -> str:
        """Returns a name for tables, such as ``expr map 4x64: exp``."""
        return f"{self.name} {summary(self.kernel)}"

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward``, and ``update`` where results could take the place of operands."""
        count = len(self.kernel.outputs)
        replaceable = self.kernel.operands[:count] == self.kernel.results
        return ("forward", "update") if replaceable else ("forward",)

    def usual_roles(self) -> tuple[Role, ...]:
        """Returns ``forward``: an update computes the same."""
        return ("forward",)

    def label(self) -> str:
        """Returns 16 hexadecimal digits of the text's SHA-256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def streamed(self, role: Role) -> int | None:
        """Returns the last operand, if each element of the result reads it at its own index alone."""
        last = len(self.kernel.operands) - 1
        return last if last in self.kernel.streams() else None

    def streaming(self, operand: int) -> Expression:
        """The same with an operand moved to the end, from where it may stream."""
        count = len(self.kernel.operands)
        order = [*(n for n in range(count) if n != operand), operand]
        numbers = {old: new for new, old in enumerate(order)}
        stages = tuple(replace(s, body=replaced(s.body, {}, numbers)) for s in self.kernel.stages)
        operands = tuple(self.kernel.operands[n] for n in order)
        return Expression.of(Described(operands, stages, self.kernel.outputs))

    def _signature(self, role: Role) -> Signature:
        return Signature(
            tuple(
                TensorSpec(f"in{n}", o.shape, o.dtype) for n, o in enumerate(self.kernel.operands)
            ),
            tuple(
                TensorSpec(f"out{n}", o.shape, o.dtype) for n, o in enumerate(self.kernel.results)
            ),
        )

    def _flops(self, role: Role) -> int:
        return self.kernel.flops
