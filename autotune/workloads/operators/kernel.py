"""A kernel: an operator in one of its roles, the unit that is tuned."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.workloads.operators.base import Operator, Role, TensorSpec
from autotune.workloads.operators.convolution import Conv2d
from autotune.workloads.operators.dense import Matmul


@dataclass(frozen=True)
class Kernel:
    """One operator in one role. The signature is ``inputs`` and then ``outputs``.

    Attributes:
        operator: The operator with its shapes.
        role: What the kernel computes of it.

    Raises:
        UsageError: On construction, when the operator has no such role.
    """

    operator: Operator
    role: Role

    def __post_init__(self) -> None:
        """Checks the role."""
        self.operator.check_role(self.role)

    @property
    def name(self) -> str:
        """A C identifier, unique to operator, shapes and role, and the same in every run."""
        return f"{self.operator.name}_{self.role}_{self.operator.label()}"

    @property
    def spec(self) -> str:
        """The operator's canonical text; with ``role`` it rebuilds the kernel."""
        return self.operator.spec()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Operands that are read."""
        return self.operator.inputs(self.role)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Operands that are written whole."""
        return self.operator.outputs(self.role)

    @property
    def flops(self) -> int:
        """Floating point operations, 2 for each multiply-add."""
        return self.operator.flops(self.role)

    @property
    def bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return self.operator.bytes(self.role)

    @property
    def is_compute(self) -> bool:
        """True where arithmetic dominates (convolution and matmul), false for memory-bound ones."""
        return isinstance(self.operator, Conv2d | Matmul)
