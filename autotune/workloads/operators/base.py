"""The base class of operators: roles, operand shapes, cost and a canonical text."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_type_hints

from autotune.errors import UsageError

Role = Literal["forward", "data_grad", "weight_grad", "update"]
DType = Literal["float32", "int32"]
Pair = tuple[int, int]

ROLES: tuple[Role, ...] = get_args(Role)
BYTES_PER_ELEMENT = 4  # For both float32 and int32.
LARGEST_TENSOR = 2**31 - 1  # Number of elements, because generated kernels index with int32.


@dataclass(frozen=True)
class TensorSpec:
    """One operand of a kernel: a contiguous buffer.

    Attributes:
        name: The operand's name inside the kernel, such as ``"dy"``.
        shape: Sizes, slowest varying first.
        dtype: Element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType = "float32"

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the buffer in bytes."""
        return self.elements * BYTES_PER_ELEMENT


@dataclass(frozen=True)
class Signature:
    """Operands of one role, in the order of a kernel's parameters: inputs, then outputs."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Operator(ABC):
    """An operator with its shapes; frozen and hashable.

    A subclass is a frozen dataclass whose fields are ``int``, ``bool`` or a pair of ints (height,
    width). Sizes are at least 1, except the fields that ``may_be_zero``.

    Raises:
        UsageError: On construction, if a field has the wrong type or an impossible value, or if a tensor would have
            more than ``LARGEST_TENSOR`` elements.
    """

    name: ClassVar[str]
    may_be_zero: ClassVar[frozenset[str]] = frozenset(("pad",))

    def __post_init__(self) -> None:
        """Checks the fields, then what the subclass adds, then the sizes of the tensors."""
        for key, kind in field_types(type(self)).items():
            self._check_field(key, kind, getattr(self, key))
        self._check_shapes()
        for role in self.roles():
            for tensor in (*self.inputs(role), *self.outputs(role)):
                if tensor.elements > LARGEST_TENSOR:
                    raise UsageError(
                        f"{self.name}: {role} tensor {tensor.name} of shape {tensor.shape} has "
                        f"{tensor.elements} elements, more than {LARGEST_TENSOR}",
                        hint="make the batch or the other sizes smaller",
                    )

    @abstractmethod
    def roles(self) -> tuple[Role, ...]:
        """Returns the roles that this operator has in a training step, in the order of ROLES."""

    @abstractmethod
    def label(self) -> str:
        """Returns the shapes as letters, digits and underscores; unique within the operator."""

    @abstractmethod
    def _signature(self, role: Role) -> Signature:
        """Returns the operands of ``role``, one of ``roles()``."""

    @abstractmethod
    def _flops(self, role: Role) -> int:
        """Returns the floating point operations of ``role``, one of ``roles()``."""

    def _check_shapes(self) -> None:  # noqa: B027 - most operators have nothing to add
        """Raises UsageError if the fields do not fit each other."""

    def usual_roles(self) -> tuple[Role, ...]:
        """Returns the roles that are meant where none is named: all of them."""
        return self.roles()

    def streamed(self, role: Role) -> int | None:
        """Returns the index of the operand that may come straight from its producer; None if there is none.

        The kernel reads it element by element, each for one element of every output. So the kernel can run as the
        epilogue of another kernel, which saves a pass over memory.
        """
        return None

    def inputs(self, role: Role) -> tuple[TensorSpec, ...]:
        """Returns the input operands of ``role``.

        Raises:
            UsageError: This operator has no such role.
        """
        self.check_role(role)
        return self._signature(role).inputs

    def outputs(self, role: Role) -> tuple[TensorSpec, ...]:
        """Returns the output operands of ``role``.

        Raises:
            UsageError: This operator has no such role.
        """
        self.check_role(role)
        return self._signature(role).outputs

    def flops(self, role: Role) -> int:
        """Returns the floating-point operations: 2 for each multiply-add; comparisons count as 1.

        Taps in the padding are counted, as is usual for convolutions.

        Raises:
            UsageError: This operator has no such role.
        """
        self.check_role(role)
        return self._flops(role)

    def bytes(self, role: Role) -> int:
        """Returns the bytes of all inputs and outputs, each touched once (compulsory traffic).

        Raises:
            UsageError: This operator has no such role.
        """
        return sum(tensor.bytes for tensor in (*self.inputs(role), *self.outputs(role)))

    def spec(self) -> str:
        """Returns the canonical text, such as ``matmul:m=8,n=10,k=84``.

        Fields that have their default are left out. ``operator_from_spec`` reads the text back.
        """
        parts = [
            f"{field.name}={_value_text(getattr(self, field.name))}"
            for field in fields(self)
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{self.name}:{','.join(parts)}"

    def check_role(self, role: str) -> None:
        """Raises UsageError unless ``role`` is one of ``roles()``."""
        if role not in self.roles():
            raise UsageError(
                f"{self.name} has no role {role!r} in {self.spec()}",
                hint=f"its roles: {', '.join(self.roles())}",
            )

    def _check_field(self, key: str, kind: object, value: object) -> None:
        if kind is bool:
            if not isinstance(value, bool):
                raise UsageError(
                    f"{self.name}: {key}={value!r} is not true or false", hint=f"{key}=0 or {key}=1"
                )
            return
        least = 0 if key in self.may_be_zero else 1
        numbers: tuple[object, ...] = (value,)
        if kind is not int:
            if not isinstance(value, tuple) or len(value) != 2:
                raise UsageError(
                    f"{self.name}: {key}={value!r} is not a pair (height, width)",
                    hint=f"write {key} as a pair such as (2, 1), or as 2x1 in text",
                )
            numbers = value
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool):
                raise UsageError(
                    f"{self.name}: {key}={value!r} is not a whole number", hint="give an integer"
                )
            if number < least:
                raise UsageError(
                    f"{self.name}: {key}={_value_text(value)} is too small",
                    hint=f"{key} must be at least {least}",
                )


@cache
def field_types(operator: Any) -> Mapping[str, object]:
    """Returns the fields of an operator class with their types: ``int``, ``bool`` or a tuple of ints."""
    hints = get_type_hints(operator)
    return {field.name: hints[field.name] for field in fields(operator)}


def optional_fields(operator: Any) -> frozenset[str]:
    """Returns the names of the fields that may be left out of a spec."""
    every: tuple[Field[object], ...] = fields(operator)
    return frozenset(field.name for field in every if field.default is not MISSING)


def pair_text(pair: Pair) -> str:
    """Returns ``"2"`` for (2, 2) and ``"2x1"`` for (2, 1)."""
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"


def in_layout(channels_last: bool, n: int, c: int, *size: int) -> tuple[int, ...]:
    """Returns [n, c, ...], or [n, ..., c] with channels last."""
    return (n, *size, c) if channels_last else (n, c, *size)


def _value_text(value: object) -> str:
    if isinstance(value, tuple):
        return pair_text(value)
    return str(int(value)) if isinstance(value, bool) else str(value)
