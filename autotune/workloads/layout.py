"""Layouts: the order of a tensor's elements in memory.

A model is captured with channels first. With channels last (NHWC), a convolution's channels are contiguous in both
operands of all three roles, so no kernel needs to pack anything. Only values from and to the outside (data,
parameters) are reordered, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import Kernel, Operator, TensorSpec

FILTERS = (2, 3, 1, 0)


@dataclass(frozen=True)
class Layout:
    """The order in which a tensor is stored.

    Attributes:
        shape: The tensor's shape as the model defines it.
        view: Its shape with the axes split, such as [n, c, h, w] for [n, c * h * w].
        order: Axes of ``view`` in the order in which they are stored.
    """

    shape: tuple[int, ...]
    view: tuple[int, ...]
    order: tuple[int, ...]

    def store(self, array: NDArray[Any]) -> NDArray[Any]:
        """Reorders an array of ``shape`` for storage; returns it with the view's axes in stored order."""
        return np.ascontiguousarray(array.reshape(self.view).transpose(self.order))

    def restore(self, array: NDArray[Any]) -> NDArray[Any]:
        """Converts a stored array, of any shape, back to ``shape``."""
        stored = array.reshape([self.view[axis] for axis in self.order])
        return np.ascontiguousarray(stored.transpose(np.argsort(self.order))).reshape(self.shape)


def images_last(shape: Sequence[int]) -> Layout:
    """Returns the layout of activations [n, c, ...] with channels last."""
    axes = tuple(range(len(shape)))
    return Layout(tuple(shape), tuple(shape), (0, *axes[2:], 1))


def filters_last(shape: Sequence[int]) -> Layout:
    """Returns the layout of filters [k, c, r, s] as [r, s, c, k]."""
    return Layout(tuple(shape), tuple(shape), FILTERS)


def channels_first(operator: Operator) -> Operator:
    """Returns the same operator with channels first."""
    return with_channels_last(operator, False)


def with_channels_last(operator: Operator, wanted: bool = True) -> Operator:
    """Returns the same operator in another layout. An operator without channels is returned unchanged."""
    if not any(field.name == "channels_last" for field in fields(operator)):
        return operator
    return replace(operator, **{"channels_last": wanted})


def operand_layouts(kernel: Kernel) -> tuple[list[Layout | None], list[Layout | None]]:
    """Returns the layouts of a kernel's inputs and outputs; None if an operand is the same with channels first.

    Args:
        kernel: A kernel without an epilogue.
    """
    plain = Kernel(channels_first(kernel.operator), kernel.role)

    def layouts(specs: Sequence[TensorSpec]) -> list[Layout | None]:
        return [None if plain == kernel else _layout(spec.name, spec.shape) for spec in specs]

    return layouts(plain.inputs), layouts(plain.outputs)


def _layout(name: str, shape: tuple[int, ...]) -> Layout | None:
    if name in ("weight", "dweight"):
        return filters_last(shape)
    return images_last(shape) if len(shape) > 2 else None
