"""Updates of the parameters: SGD, SGD with momentum and Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.workloads.operators.base import Operator, Role, Signature, TensorSpec


@dataclass(frozen=True)
class _Update(Operator):
    """Base class of operators that replace a tensor of ``size`` elements by its value after the step."""

    size: int

    def roles(self) -> tuple[Role, ...]:
        """Returns ``update``."""
        return ("update",)

    def label(self) -> str:
        """Returns a text such as ``size1024``."""
        return f"size{self.size}"


@dataclass(frozen=True)
class Sgd(_Update):
    """Plain stochastic gradient descent on one parameter, float32.

    update: ``weight[size], grad[size], learning_rate[1] -> new_weight[size]``, where
    ``new_weight = weight - learning_rate * grad``.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "sgd"

    def streamed(self, role: Role) -> int | None:
        """Returns ``grad``."""
        return 1

    def _signature(self, role: Role) -> Signature:
        return Signature(
            (*_flat(self.size, "weight", "grad"), *_flat(1, "learning_rate")),
            _flat(self.size, "new_weight"),
        )

    def _flops(self, role: Role) -> int:
        return 2 * self.size


@dataclass(frozen=True)
class Momentum(_Update):
    """SGD with momentum on one parameter, as in PyTorch: without dampening, and not Nesterov's; float32.

    update: ``weight[size], velocity[size], grad[size], learning_rate[1], momentum[1] -> new_weight, new_velocity``,
    where ``new_velocity = momentum * velocity + grad`` and
    ``new_weight = weight - learning_rate * new_velocity``.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "momentum"

    def streamed(self, role: Role) -> int | None:
        """Returns ``grad``."""
        return 2

    def _signature(self, role: Role) -> Signature:
        return Signature(
            (
                *_flat(self.size, "weight", "velocity", "grad"),
                *_flat(1, "learning_rate", "momentum"),
            ),
            _flat(self.size, "new_weight", "new_velocity"),
        )

    def _flops(self, role: Role) -> int:
        return 4 * self.size


@dataclass(frozen=True)
class Adam(_Update):
    """Adam on one parameter (Kingma and Ba, ICLR 2015), with PyTorch's bias correction; float32.

    update: ``weight[size], first[size], second[size], grad[size], learning_rate[1], beta1[1], beta2[1],
    epsilon[1], beta1_power[1], beta2_power[1] -> new_weight, new_first, new_second``, where

    - ``new_first = beta1 * first + (1 - beta1) * grad``;
    - ``new_second = beta2 * second + (1 - beta2) * grad^2``;
    - ``new_weight = weight - learning_rate / (1 - beta1_power) * new_first /
      (sqrt(new_second / (1 - beta2_power)) + epsilon)``.

    The powers belong to the current step (exponent 1 in the first step): ``RunningPower`` has updated them.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "adam"

    def streamed(self, role: Role) -> int | None:
        """Returns ``grad``."""
        return 3

    def _signature(self, role: Role) -> Signature:
        rates = ("learning_rate", "beta1", "beta2", "epsilon", "beta1_power", "beta2_power")
        return Signature(
            (*_flat(self.size, "weight", "first", "second", "grad"), *_flat(1, *rates)),
            _flat(self.size, "new_weight", "new_first", "new_second"),
        )

    def _flops(self, role: Role) -> int:
        # 3 and 4 for the moments, 6 for the step; the bias corrections are computed once.
        return 13 * self.size


@dataclass(frozen=True)
class RunningPower(_Update):
    """``base`` to the power of the number of steps, which Adam's bias correction needs; float32.

    update: ``power[size], base[size] -> new_power[size]``, where ``new_power = power * base``.

    Attributes:
        size: Number of elements.

    Raises:
        UsageError: On construction, if ``size`` is below 1.
    """

    name: ClassVar[str] = "running_power"

    def _signature(self, role: Role) -> Signature:
        return Signature(_flat(self.size, "power", "base"), _flat(self.size, "new_power"))

    def _flops(self, role: Role) -> int:
        return self.size


def _flat(size: int, *names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, (size,)) for name in names)
