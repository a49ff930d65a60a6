"""Memory-bound operators that touch each element once: bias, add, dropout and concat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import UsageError
from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec, in_layout


@dataclass(frozen=True)
class Bias(Operator):
    """Adds a bias to each channel, followed by ReLU if ``relu``; float32.

    forward: ``x[n,c,s], bias[c] -> y``; data_grad, only with ReLU: ``y, dy -> dx = dy * (y > 0)`` (without ReLU,
    the gradient passes unchanged); weight_grad: ``dy -> dbias[c]``, where ``dy`` is the gradient before the ReLU,
    the output of data_grad.

    Attributes:
        n: Batch.
        c: Channels.
        s: Pixels, height times width; 1 after a fully connected layer.
        relu: Whether a ReLU follows.
        channels_last: Layout of the wide operands: [n,s,c].

    Raises:
        UsageError: On construction, if a size is below 1.
    """

    name: ClassVar[str] = "bias"

    n: int
    c: int
    s: int
    relu: bool
    channels_last: bool = False

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward``, ``data_grad`` if there is a ReLU, and ``weight_grad``."""
        if self.relu:
            return ("forward", "data_grad", "weight_grad")
        return ("forward", "weight_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c64s3136_relu``."""
        layout = "_nhwc" if self.channels_last else ""
        return f"n{self.n}c{self.c}s{self.s}{'_relu' if self.relu else ''}{layout}"

    def streamed(self, role: Role) -> int | None:
        """Returns ``x`` or ``dy``, except for the weight gradient, which is a reduction."""
        return {"forward": 0, "data_grad": 1}.get(role)

    def _signature(self, role: Role) -> Signature:
        wide = in_layout(self.channels_last, self.n, self.c, self.s)
        if role == "forward":
            return Signature(
                (TensorSpec("x", wide), TensorSpec("bias", (self.c,))), (TensorSpec("y", wide),)
            )
        if role == "data_grad":
            return Signature(
                (TensorSpec("y", wide), TensorSpec("dy", wide)), (TensorSpec("dx", wide),)
            )
        return Signature((TensorSpec("dy", wide),), (TensorSpec("dbias", (self.c,)),))

    def _flops(self, role: Role) -> int:
        return self.n * self.c * self.s * (2 if role == "forward" and self.relu else 1)


@dataclass(frozen=True)
class Concat(Operator):
    """Joins two to four tensors along the channels, float32.

    forward: ``a[n,c1,s], b[n,c2,s], ... -> y[n,c1+c2+...,s]``; data_grad: ``dy -> da, db, ...``.

    Attributes:
        n: Batch.
        c1: Channels of the first tensor.
        c2: Channels of the second tensor.
        s: Pixels, height times width.
        c3: Channels of the third tensor; 0 without one.
        c4: Channels of the fourth tensor; 0 without one.
        channels_last: Layout of the operands: [n,s,c].

    Raises:
        UsageError: On construction, if a size is below 1, or there is a fourth tensor but no third.
    """

    name: ClassVar[str] = "concat"
    may_be_zero: ClassVar[frozenset[str]] = frozenset(("c3", "c4"))

    n: int
    c1: int
    c2: int
    s: int
    c3: int = 0
    c4: int = 0
    channels_last: bool = False

    @property
    def parts(self) -> tuple[int, ...]:
        """Channels of each tensor."""
        return tuple(c for c in (self.c1, self.c2, self.c3, self.c4) if c)

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``n8a64b64s3025``."""
        parts = "".join(f"{letter}{c}" for letter, c in zip("abcd", self.parts, strict=False))
        return f"n{self.n}{parts}s{self.s}{'_nhwc' if self.channels_last else ''}"

    def _check_shapes(self) -> None:
        if self.c4 and not self.c3:
            raise UsageError("concat: c4 without c3", hint="name the third tensor's channels c3")

    def _signature(self, role: Role) -> Signature:
        def shape(channels: int) -> tuple[int, ...]:
            return in_layout(self.channels_last, self.n, channels, self.s)

        shapes = [(letter, shape(c)) for letter, c in zip("abcd", self.parts, strict=False)]
        joined = shape(sum(self.parts))
        if role == "forward":
            return Signature(
                tuple(TensorSpec(letter, shape) for letter, shape in shapes),
                (TensorSpec("y", joined),),
            )
        return Signature(
            (TensorSpec("dy", joined),),
            tuple(TensorSpec(f"d{letter}", shape) for letter, shape in shapes),
        )

    def _flops(self, role: Role) -> int:
        return 0


@dataclass(frozen=True)
class Add(Operator):
    """Sums two tensors: a residual connection, or two gradients of a tensor that is used twice; float32.

    forward and data_grad: ``a[size], b[size] -> y[size]``. A residual connection needs no gradient kernel, because
    both operands get the gradient of ``y``.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "add"

    size: int

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``size1024``."""
        return f"size{self.size}"

    def streamed(self, role: Role) -> int | None:
        """Returns ``a``."""
        return 0

    def _signature(self, role: Role) -> Signature:
        flat = (self.size,)
        return Signature((TensorSpec("a", flat), TensorSpec("b", flat)), (TensorSpec("y", flat),))

    def _flops(self, role: Role) -> int:
        return self.size


@dataclass(frozen=True)
class Dropout(Operator):
    """Multiplies by a mask from the caller with values 0 or ``1 / (1 - p)``; float32.

    forward: ``x[size], mask[size] -> y[size]``; data_grad: ``dy, mask -> dx``.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "dropout"

    size: int

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``size1024``."""
        return f"size{self.size}"

    def streamed(self, role: Role) -> int | None:
        """Returns ``x`` or ``dy``."""
        return 0

    def _signature(self, role: Role) -> Signature:
        flat = (self.size,)
        source, target = ("x", "y") if role == "forward" else ("dy", "dx")
        return Signature(
            (TensorSpec(source, flat), TensorSpec("mask", flat)), (TensorSpec(target, flat),)
        )

    def _flops(self, role: Role) -> int:
        return self.size
