"""A kernel: an operator in one of its roles, with an epilogue in the same pass. It is the unit that is tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from autotune.errors import UsageError
from autotune.workloads.operators.attention import Attention
from autotune.workloads.operators.base import Operator, Role, TensorSpec
from autotune.workloads.operators.batched import Bmm
from autotune.workloads.operators.convolution import Conv2d
from autotune.workloads.operators.dense import Matmul
from autotune.workloads.operators.own import OwnKernel


@dataclass(frozen=True)
class Kernel:
    """One operator in one role, and its epilogue. The signature is ``inputs``, then ``outputs``.

    An epilogue is a chain of element-wise kernels. Each takes the previous result as its streamed operand: for
    example a convolution's forward pass with bias and ReLU, or its weight gradient with the parameter's update.
    Intermediate results are never written to memory.

    Attributes:
        operator: The operator with its shapes.
        role: The role that the kernel computes.
        epilogue: Kernels, themselves without an epilogue, in order.

    Raises:
        UsageError: On construction, if the operator does not have the role, or the epilogue does not fit.
    """

    operator: Operator
    role: Role
    epilogue: tuple[Kernel, ...] = ()

    def __post_init__(self) -> None:
        """Checks the role and the epilogue."""
        self.operator.check_role(self.role)
        result = self.operator.outputs(self.role)
        for follower in self.epilogue:
            streamed = follower.streamed
            if follower.epilogue or streamed is None or len(result) != 1:
                raise UsageError(
                    f"{follower.name} cannot follow another kernel in one pass",
                    hint="only element-wise kernels can, after a kernel with one output",
                )
            operand = follower.inputs[streamed]
            if (operand.elements, operand.dtype) != (result[0].elements, result[0].dtype):
                raise UsageError(
                    f"{follower.name} takes {operand.elements} elements, but follows a kernel that makes "
                    f"{result[0].elements}",
                    hint="make the sizes of both agree",
                )
            self._check_channels(follower)
            result = follower.outputs

    def _check_channels(self, follower: Kernel) -> None:
        """Checks that operands with one value per channel match the result's channels.

        Raises:
            UsageError: They do not match.
        """
        (result,) = self.operator.outputs(self.role)
        channels = getattr(follower.operator, "c", 0)
        if (channels,) not in [
            s.shape for s in follower.added_inputs
        ] or channels == result.elements:
            return
        last = getattr(follower.operator, "channels_last", False)
        flat = len(result.shape) == 1
        agree = len(result.shape) == 2 or last == getattr(self.operator, "channels_last", last)
        if flat or not agree or channels != (result.shape[-1] if last else result.shape[1]):
            raise UsageError(
                f"{follower.name} has {channels} channels {'last' if last else 'first'}, but follows a kernel that "
                f"makes {list(result.shape)}",
                hint="make channels and layout of both agree",
            )

    @property
    def name(self) -> str:
        """A C identifier, unique to operator, shapes and role. It is the same in every run."""
        own = f"{self.operator.name}_{self.role}_{self.operator.label()}"
        return "__".join([own, *(follower.name for follower in self.epilogue)])

    @property
    def spec(self) -> str:
        """The canonical text. Together with ``role``, it rebuilds the kernel: ``conv2d:...+bias.forward:...``."""
        followers = (f.spec.replace(":", f".{f.role}:", 1) for f in self.epilogue)
        return "+".join([self.operator.spec(), *followers])

    @property
    def main(self) -> Kernel:
        """The kernel without its epilogue."""
        return replace(self, epilogue=())

    @property
    def streamed(self) -> int | None:
        """The input that may come straight from another kernel; None if there is none."""
        return None if self.epilogue else self.operator.streamed(self.role)

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Operands that are read: the main kernel's, then those that each follower adds.

        A follower's operands that are as large as the result have the result's shape.
        """
        specs = list(self.operator.inputs(self.role))
        for number, follower in enumerate(self.epilogue, start=1):
            for spec in follower.added_inputs:
                shape = self._wide(spec)
                specs.append(TensorSpec(f"{spec.name}_{number}", shape, spec.dtype))
        return tuple(specs)

    @property
    def added_inputs(self) -> tuple[TensorSpec, ...]:
        """Operands that a follower reads besides its streamed operand."""
        return tuple(spec for at, spec in enumerate(self.inputs) if at != self.streamed)

    @cached_property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Operands that are written completely."""
        last = self.epilogue[-1] if self.epilogue else None
        if last is None:
            return self.operator.outputs(self.role)
        return tuple(TensorSpec(s.name, self._wide(s), s.dtype) for s in last.outputs)

    def _wide(self, spec: TensorSpec) -> tuple[int, ...]:
        (result,) = self.operator.outputs(self.role)
        return result.shape if spec.elements == result.elements else spec.shape

    @property
    def replaces(self) -> tuple[int, ...]:
        """For an update, the index of the input that each output replaces (its own first ones); otherwise empty."""
        last = self.epilogue[-1] if self.epilogue else self
        if last.role != "update":
            return ()
        if last is self:
            return tuple(range(len(self.outputs)))
        first = len(self.inputs) - len(last.added_inputs)
        return tuple(range(first, first + len(self.outputs)))

    @property
    def flops(self) -> int:
        """Floating-point operations, 2 for each multiply-add."""
        return self.operator.flops(self.role) + sum(follower.flops for follower in self.epilogue)

    @property
    def bytes(self) -> int:
        """Size of all inputs and outputs in bytes."""
        return sum(spec.bytes for spec in (*self.inputs, *self.outputs))

    @property
    def is_compute(self) -> bool:
        """True where arithmetic dominates (convolution, matmul, attention), false for memory-bound ones.

        The user's own kernels count as such, since nothing is known about them.
        """
        return isinstance(self.operator, Conv2d | Matmul | Bmm | Attention | OwnKernel)
