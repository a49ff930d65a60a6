"""Layers of a training step that have no parameters, with their backward pass."""

from __future__ import annotations

import math

from autotune.errors import UsageError
from autotune.workloads.autodiff import StepRecorder, Value
from autotune.workloads.graph import Initial
from autotune.workloads.operators import (
    Add,
    AvgPool2d,
    Concat,
    Dropout,
    GlobalAvgPool,
    MaxPool2d,
    Operator,
    Relu,
)
from autotune.workloads.operators.base import Pair


class PlainLayers:
    """A step to which layers without parameters can be appended.

    Args:
        name: The model's name.
        batch: Number of samples in a step.
        input_shape: Shape of a sample: channels, height and width of an image.

    Raises:
        UsageError: By any method, if shapes do not fit or a place is used twice.
    """

    def __init__(
        self,
        name: str,
        batch: int,
        input_shape: tuple[int, ...],
    ) -> None:
        self._name = name
        self._step = StepRecorder(name, batch)
        shape = (batch, *input_shape)
        if min(shape) < 1:
            raise UsageError(
                f"{name}: input of shape {shape} is empty", hint="batch and sizes start at 1"
            )
        self.input = Value(
            self._step.define("input", shape, "input", initial=Initial("normal", 1.0)), shape, False
        )

    def add(self, place: str, a: Value, b: Value) -> Value:
        """Sums two values of one shape, as a residual connection does; returns that shape."""
        if a.shape != b.shape:
            raise UsageError(
                f"{place}: shapes {a.shape} and {b.shape} cannot be added",
                hint="a residual connection needs equal shapes",
            )
        y = self._step.define(place, a.shape, "activation")
        self._step.run(place, Add(math.prod(a.shape)), "forward", (a.name, b.name), (y,))

        def backward(dy: str) -> None:
            self._step.contribute(a, dy)
            self._step.contribute(b, dy)

        return self._step.record(Value(y, a.shape, a.needs_grad or b.needs_grad), backward)

    def relu(self, place: str, x: Value, *, six: bool = False) -> Value:
        """Appends a ReLU, or a ReLU6 with ``six``; returns the shape of ``x``.

        After a bias or a batch norm, use that layer's own option instead: then one kernel does both.
        """
        operator = Relu(math.prod(x.shape), six)
        y = self._step.define(place, x.shape, "activation")
        self._step.run(place, operator, "forward", (x.name,), (y,))

        def backward(dy: str) -> None:
            dx = self._step.gradient_of(x)
            self._step.run(place, operator, "data_grad", (y, dy), (dx,))
            self._step.contribute(x, dx)

        return self._step.record(Value(y, x.shape, x.needs_grad), backward)

    def avg_pool(
        self,
        place: str,
        x: Value,
        kernel: int | Pair,
        *,
        stride: int | Pair,
        pad: int | Pair = 0,
    ) -> Value:
        """Appends average pooling, with padding counted as zeros; returns [n, c, oh, ow]."""
        n, c, h, w = self._shape(place, x, 4)
        operator = AvgPool2d(n, c, h, w, *pair(kernel), pair(stride), pair(pad))
        return self._unary(place, x, operator, (n, c, operator.oh, operator.ow), ())

    def max_pool(
        self,
        place: str,
        x: Value,
        kernel: int | Pair,
        *,
        stride: int | Pair,
        pad: int | Pair = 0,
        ceil: bool = False,
    ) -> Value:
        """Appends max pooling; returns [n, c, oh, ow]."""
        n, c, h, w = self._shape(place, x, 4)
        operator = MaxPool2d(n, c, h, w, *pair(kernel), pair(stride), pair(pad), ceil)
        shape = (n, c, operator.oh, operator.ow)
        y = self._step.define(place, shape, "activation")
        index = self._step.define(f"{place}.index", shape, "activation", "int32")
        self._step.run(place, operator, "forward", (x.name,), (y, index))

        def backward(dy: str) -> None:
            dx = self._step.gradient_of(x)
            self._step.run(place, operator, "data_grad", (dy, index), (dx,))
            self._step.contribute(x, dx)

        return self._step.record(Value(y, shape, x.needs_grad), backward)

    def global_avg_pool(self, place: str, x: Value) -> Value:
        """Appends the mean over all pixels; returns [n, c]."""
        n, c, h, w = self._shape(place, x, 4)
        return self._unary(place, x, GlobalAvgPool(n, c, h * w), (n, c), ())

    def dropout(self, place: str, x: Value, probability: float) -> Value:
        """Appends dropout with the input tensor ``<place>.mask``; returns the shape of ``x``.

        Raises:
            UsageError: ``probability`` is not in [0, 1).
        """
        if not 0.0 <= probability < 1.0:
            raise UsageError(
                f"{place}: dropout probability {probability} is not in [0, 1)", hint="such as 0.5"
            )
        initial = Initial("mask", probability)
        mask = self._step.define(f"{place}.mask", x.shape, "input", initial=initial)
        return self._unary(place, x, Dropout(math.prod(x.shape)), x.shape, (mask,))

    def concat(self, place: str, *parts: Value) -> Value:
        """Joins two to four values along the channels; returns [n, c1 + c2 + ..., h, w]."""
        if not 2 <= len(parts) <= 4:
            raise UsageError(
                f"{place}: {len(parts)} values cannot be joined at once", hint="join two to four"
            )
        shapes = [self._shape(place, part, 4) for part in parts]
        n, _, h, w = shapes[0]
        if any((m, *size) != (n, h, w) for m, _, *size in shapes):
            listed = " and ".join(str(shape) for shape in shapes)
            raise UsageError(
                f"{place}: shapes {listed} cannot be joined along the channels",
                hint="batch, height and width must agree",
            )
        channels = [c for _, c, *_ in shapes]
        c1, c2, c3, c4 = [*channels, 0, 0][:4]
        operator, shape = Concat(n, c1, c2, h * w, c3, c4), (n, sum(channels), h, w)
        y = self._step.define(place, shape, "activation")
        self._step.run(place, operator, "forward", tuple(part.name for part in parts), (y,))

        def backward(dy: str) -> None:
            gradients = tuple(self._step.gradient_of(part) for part in parts)
            self._step.run(place, operator, "data_grad", (dy,), gradients)
            for part, gradient in zip(parts, gradients, strict=True):
                self._step.contribute(part, gradient)

        needs_grad = any(part.needs_grad for part in parts)
        return self._step.record(Value(y, shape, needs_grad), backward)

    def flatten(self, x: Value) -> Value:
        """Returns ``x`` viewed as [n, features]; no kernel runs."""
        return Value(x.name, (x.shape[0], math.prod(x.shape[1:])), x.needs_grad)

    def _unary(
        self,
        place: str,
        x: Value,
        operator: Operator,
        shape: tuple[int, ...],
        rest: tuple[str, ...],
    ) -> Value:
        """Appends an operator whose roles take one value, then the same ``rest``."""
        y = self._step.define(place, shape, "activation")
        self._step.run(place, operator, "forward", (x.name, *rest), (y,))

        def backward(dy: str) -> None:
            dx = self._step.gradient_of(x)
            self._step.run(place, operator, "data_grad", (dy, *rest), (dx,))
            self._step.contribute(x, dx)

        return self._step.record(Value(y, shape, x.needs_grad), backward)

    def _shape(self, place: str, x: Value, axes: int) -> tuple[int, ...]:
        if len(x.shape) != axes:
            expected = "[n, c, h, w]" if axes == 4 else "[n, features]"
            raise UsageError(
                f"{self._name}: {place} takes {expected} but got shape {x.shape}",
                hint="use flatten or global_avg_pool before linear layers and the loss",
            )
        return x.shape


def pair(value: int | Pair) -> Pair:
    """Returns height and width; a number is used for both."""
    return (value, value) if isinstance(value, int) else value
