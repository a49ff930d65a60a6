"""Builds a training step layer by layer. Backward pass and updates are added automatically."""

from __future__ import annotations

import math

from autotune.errors import UsageError
from autotune.workloads.autodiff import Value
from autotune.workloads.graph import Initial, StepGraph
from autotune.workloads.operators import (
    BatchNorm,
    BatchStats,
    Bias,
    Conv2d,
    CrossEntropy,
    Matmul,
    RunningStats,
)
from autotune.workloads.operators.base import Pair
from autotune.workloads.optimizer import Optimizer
from autotune.workloads.plain_layers import PlainLayers, pair
from autotune.workloads.updates import write_updates

DEFAULT_OPTIMIZER = Optimizer()


class StepBuilder(PlainLayers):
    """Records the forward pass, and derives the backward pass from it.

    Every layer method takes a ``place``, the layer's unique name (``fire2.squeeze``). It appends the layer's
    forward nodes, and records how to append the backward nodes. ``finish`` appends the loss, the backward pass and
    the updates. If a tensor is used several times, its gradients are summed by ``Add``.

    Args:
        name: The model's name.
        batch: Number of samples in a step.
        input_shape: Shape of a sample: channels, height and width of an image.

    Raises:
        UsageError: By any method, if shapes do not fit or a place is used twice.
    """

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
        """Appends a convolution, then bias and ReLU. A pair is (height, width); a number is used for both.

        The parameters are named ``<place>.weight`` and ``<place>.bias``, or as given in ``weight`` and ``bias``.
        Layers that give the same name share the parameter.

        Returns:
            [n, channels, oh, ow].

        Raises:
            UsageError: The shapes do not fit, or ReLU is requested without bias.
        """
        n, c, h, w = self._shape(place, x, 4)
        r, s = pair(kernel)
        steps, margins, gaps = pair(stride), pair(pad), pair(dilation)
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
        """Appends a fully connected layer, then bias and ReLU. Parameters are named as in ``conv``.

        Returns:
            [n, features].

        Raises:
            UsageError: The input is not flat, or ReLU is requested without bias.
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
            A value with the shape of ``x``, [n, c, h, w] or [n, c].

        Raises:
            UsageError: There is only one value per channel, or both activations are requested.
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

    def finish(self, logits: Value, optimizer: Optimizer = DEFAULT_OPTIMIZER) -> StepGraph:
        """Appends the mean cross entropy on ``labels``, the backward pass, and one update per parameter.

        Args:
            logits: [n, classes].
            optimizer: The optimiser; plain SGD by default.

        Returns:
            The validated step.

        Raises:
            UsageError: ``logits`` is not flat, has only one class, or depends on no parameter.
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
