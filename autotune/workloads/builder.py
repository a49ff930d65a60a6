"""Builds a training step layer by layer; backward pass and updates follow by themselves."""

from __future__ import annotations

import math

from autotune.errors import UsageError
from autotune.workloads.autodiff import StepRecorder, Value
from autotune.workloads.graph import Initial, StepGraph
from autotune.workloads.operators import (
    Add,
    AvgPool2d,
    BatchNorm,
    BatchStats,
    Bias,
    Concat,
    Conv2d,
    CrossEntropy,
    Dropout,
    GlobalAvgPool,
    Matmul,
    MaxPool2d,
    Operator,
    Relu,
    RunningStats,
)
from autotune.workloads.operators.base import Pair
from autotune.workloads.optimizer import Optimizer
from autotune.workloads.updates import write_updates

DEFAULT_OPTIMIZER = Optimizer()


class StepBuilder:
    """Collects the forward pass and writes the backward pass from its end.

    Every layer method takes a ``place``, the layer's unique name (``fire2.squeeze``), appends its
    forward nodes and remembers how to append the backward ones. ``finish`` appends loss, backward
    pass and updates. Where a tensor is used several times its gradients are summed by ``Add``.

    Args:
        name: The model's name.
        batch: Samples in a step.
        input_shape: Shape of a sample: channels, height and width of an image.

    Raises:
        UsageError: By any method, when shapes do not fit or a place is used twice.
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

    def conv(
        self,
        place: str,
        x: Value,
        channels: int,
        kernel: int | Pair,
        *,
        stride: int | Pair = 1,
        pad: int | Pair = 0,
        dilation: int | Pair = 1,
        groups: int = 1,
        bias: bool | str = True,
        relu: bool = False,
        weight: str | None = None,
    ) -> Value:
        """Appends a convolution, then bias and ReLU; a pair is (height, width), a number stands for both.

        The parameters are ``<place>.weight`` and ``<place>.bias``, or have the names given as ``weight`` and
        ``bias``: layers that name the same one share it.

        Returns:
            [n, channels, oh, ow].

        Raises:
            UsageError: The shapes do not fit, or ReLU is asked for without bias.
        """
        n, c, h, w = self._shape(place, x, 4)
        r, s = _pair(kernel)
        steps, margins, gaps = _pair(stride), _pair(pad), _pair(dilation)
        operator = Conv2d(n, c, h, w, channels, r, s, steps, margins, gaps, groups)
        return self._weighted(place, x, operator, bias, relu, weight)

    def linear(
        self,
        place: str,
        x: Value,
        features: int,
        *,
        bias: bool | str = True,
        relu: bool = False,
        weight: str | None = None,
    ) -> Value:
        """Appends a fully connected layer, then bias and ReLU; names of parameters as in ``conv``.

        Returns:
            [n, features].

        Raises:
            UsageError: The input is not flat, or ReLU is asked for without bias.
        """
        n, k = self._shape(place, x, 2)
        return self._weighted(place, x, Matmul(n, features, k), bias, relu, weight)

    def batch_norm(
        self,
        place: str,
        x: Value,
        *,
        epsilon_millionths: int = 10,
        momentum: float = 0.1,
        relu: bool = False,
        relu6: bool = False,
    ) -> Value:
        """Appends batch normalisation by the batch's statistics, then ReLU or ReLU6.

        The running statistics ``<place>.running_mean`` and ``<place>.running_var`` are updated with ``momentum``.

        Returns:
            The shape of ``x``, [n, c, h, w] or [n, c].

        Raises:
            UsageError: There is only one value a channel, or both activations are asked for.
        """
        n, c, *size = self._shape(place, x, 2 if len(x.shape) == 2 else 4)
        pixels = math.prod(size)
        operator = BatchNorm(n, c, pixels, epsilon_millionths, relu, relu6)
        step = self._step
        gamma = step.parameter(f"{place}.weight", (c,), Initial("constant", 1.0))
        beta = step.parameter(f"{place}.bias", (c,), Initial("constant", 0.0))
        mean = step.define(f"{place}.mean", (c,), "activation")
        variance = step.define(f"{place}.variance", (c,), "activation")
        y = step.define(place, x.shape, "activation")
        step.run(place, BatchStats(n, c, pixels), "forward", (x.name,), (mean, variance))
        self._running_stats(place, mean, variance, RunningStats(c, n * pixels), momentum)
        operands = (x.name, mean, variance)
        step.run(place, operator, "forward", (*operands, gamma.name, beta.name), (y,))

        def backward(dy: str) -> None:
            seen = (y, dy) if operator.activated else (dy,)
            sums = step.gradient_of(gamma), step.gradient_of(beta)
            step.run(place, operator, "weight_grad", (*operands, *seen), sums)
            step.contribute(gamma, sums[0])
            step.contribute(beta, sums[1])
            if x.needs_grad:
                dx = step.gradient_of(x)
                step.run(place, operator, "data_grad", (*operands, gamma.name, *sums, *seen), (dx,))
                step.contribute(x, dx)

        return step.record(Value(y, x.shape, True), backward)

    def _running_stats(
        self, place: str, mean: str, variance: str, operator: RunningStats, momentum: float
    ) -> None:
        step, shape = self._step, (operator.c,)
        before, after = [], []
        for name, value in (("running_mean", 0.0), ("running_var", 1.0)):
            state = f"{place}.{name}"
            before.append(step.define(state, shape, "state", initial=Initial("constant", value)))
            after.append(step.define(f"{state}.updated", shape, "updated"))
        rate = step.constant(f"momentum_{momentum}", momentum)
        step.run(place, operator, "update", (*before, mean, variance, rate), tuple(after))

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
        """Appends a ReLU, or one that stops at 6; returns the shape of ``x``.

        After a bias or a batch norm, ask that layer for it: one kernel does both.
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
        """Appends average pooling, where padding counts as zeros; returns [n, c, oh, ow]."""
        n, c, h, w = self._shape(place, x, 4)
        operator = AvgPool2d(n, c, h, w, *_pair(kernel), _pair(stride), _pair(pad))
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
        operator = MaxPool2d(n, c, h, w, *_pair(kernel), _pair(stride), _pair(pad), ceil)
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
        """Sees ``x`` as [n, features]; no kernel runs."""
        return Value(x.name, (x.shape[0], math.prod(x.shape[1:])), x.needs_grad)

    def finish(self, logits: Value, optimizer: Optimizer = DEFAULT_OPTIMIZER) -> StepGraph:
        """Appends mean cross entropy on ``labels``, the backward pass and one update a parameter.

        Args:
            logits: [n, classes].
            optimizer: What updates the parameters; plain SGD unless told.

        Returns:
            The validated step.

        Raises:
            UsageError: ``logits`` is not flat, has one class only, or depends on no parameter.
        """
        n, classes = self._shape("loss", logits, 2)
        if not logits.needs_grad:
            raise UsageError(
                f"{self._name}: there is no parameter to train", hint="add conv or linear layers"
            )
        if classes == 1:
            raise UsageError(
                f"{self._name}: the model has one class, and the cross entropy of one class is 0: "
                "nothing would be learnt",
                hint="give it an output for each class, two for yes and no",
            )
        operator = CrossEntropy(n, classes)
        initial = Initial("classes", classes)
        labels = self._step.define("labels", (n,), "label", "int32", initial)
        loss = self._step.define("loss", (1,), "activation")
        self._step.run("loss", operator, "forward", (logits.name, labels), (loss,))
        gradient = self._step.gradient_of(logits)
        self._step.run("loss", operator, "data_grad", (logits.name, labels), (gradient,))
        self._step.contribute(logits, gradient)
        write_updates(self._step, optimizer, self._step.differentiate())
        return self._step.graph(loss)

    def _weighted(
        self,
        place: str,
        x: Value,
        operator: Conv2d | Matmul,
        bias: bool | str,
        relu: bool,
        weight_name: str | None,
    ) -> Value:
        if relu and not bias:
            raise UsageError(f"{place}: ReLU without bias is not supported", hint="use bias=True")
        weight_shape = operator.inputs("forward")[1].shape
        shape = operator.outputs("forward")[0].shape
        initial = Initial("uniform", 1.0 / math.sqrt(math.prod(weight_shape[1:])))
        weight = self._step.parameter(weight_name or f"{place}.weight", weight_shape, initial)
        y = self._step.define(f"{place}.product" if bias else place, shape, "activation")
        self._step.run(place, operator, "forward", (x.name, weight.name), (y,))

        def backward(dy: str) -> None:
            dweight = self._step.gradient_of(weight)
            self._step.run(place, operator, "weight_grad", (x.name, dy), (dweight,))
            self._step.contribute(weight, dweight)
            if x.needs_grad:
                dx = self._step.gradient_of(x)
                self._step.run(place, operator, "data_grad", (dy, weight.name), (dx,))
                self._step.contribute(x, dx)

        product = self._step.record(Value(y, shape, True), backward)
        if not bias:
            return product
        offsets = f"{place}.bias" if bias is True else bias
        return self._bias(place, product, self._step.parameter(offsets, shape[1:2], initial), relu)

    def _bias(self, place: str, x: Value, offsets: Value, relu: bool) -> Value:
        n, c, *size = x.shape
        operator = Bias(n, c, math.prod(size), relu)
        y = self._step.define(place, x.shape, "activation")
        self._step.run(place, operator, "forward", (x.name, offsets.name), (y,))

        def backward(dy: str) -> None:
            dx = dy
            if relu:
                dx = self._step.gradient_of(x)
                self._step.run(place, operator, "data_grad", (y, dy), (dx,))
            self._step.contribute(x, dx)
            doffsets = self._step.gradient_of(offsets)
            self._step.run(place, operator, "weight_grad", (dx,), (doffsets,))
            self._step.contribute(offsets, doffsets)

        return self._step.record(Value(y, x.shape, True), backward)

    def _unary(
        self,
        place: str,
        x: Value,
        operator: Operator,
        shape: tuple[int, ...],
        rest: tuple[str, ...],
    ) -> Value:
        """Appends an operator whose roles take one value and then the same ``rest``."""
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


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value
