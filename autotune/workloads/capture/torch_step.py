"""Training steps in PyTorch, in eager mode: of a step graph, or of a user's module, run as users run them.

Importing this module loads PyTorch, and raises `UsageError` if it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.workloads import (
    Add,
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
    Node,
    StepGraph,
)
from autotune.workloads.capture.factory import import_torch
from autotune.workloads.capture.graph_reader import Array, GraphReader
from autotune.workloads.capture.user_step import WantedStep
from autotune.workloads.optimizer import Optimizer

torch = import_torch()
Tensor = Any
F = torch.nn.functional
Function = Callable[..., Tensor]


class ModuleStep:
    """A step of the user's own: zero the gradients, forward, loss, backward, update.

    Args:
        wanted: The step; its module is trained.
        optimizer: How its parameters are updated.
    """

    def __init__(self, wanted: WantedStep, optimizer: Optimizer) -> None:
        self._wanted = wanted
        trained = [p for p in wanted.module.parameters() if p.requires_grad]
        self._trained, self._settings = trained, optimizer
        self._optimizer = _update(trained, optimizer)

    def step(self, given: Mapping[str, Array | Tensor]) -> float:
        """Trains on one batch, with random numbers of PyTorch's own.

        Args:
            given: Inputs and labels by name, in the module's shapes.

        Returns:
            The loss before the update.
        """
        inputs, labels = (
            [_as(given[name], like) for name, like in examples.items()]
            for examples in (self._wanted.inputs, self._wanted.labels)
        )
        self._optimizer.zero_grad(set_to_none=True)
        arguments, named = self._wanted.arguments(inputs)
        loss = self._wanted.loss(self._wanted.module(*arguments, **named), *labels)
        loss.backward()
        if most := self._settings.clip_value:
            torch.nn.utils.clip_grad_value_(self._trained, most)
        if most := self._settings.clip_norm:
            torch.nn.utils.clip_grad_norm_(self._trained, most)
        self._optimizer.step()
        return float(loss.item())


def _as(value: Array | Tensor, like: Tensor) -> Tensor:
    """A value as a tensor; integers get the type of an example."""
    tensor = torch.as_tensor(value)
    return tensor if tensor.is_floating_point() else tensor.to(like.dtype)


def _update(parameters: list[Any], optimizer: Optimizer) -> Any:
    betas = (optimizer.beta1, optimizer.beta2)
    rate, epsilon, decay = optimizer.learning_rate, optimizer.epsilon, optimizer.weight_decay
    match optimizer.algorithm:
        case "adam":
            return torch.optim.Adam(parameters, rate, betas, epsilon, decay)
        case "adamw":
            return torch.optim.AdamW(parameters, rate, betas, epsilon, decay)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, rate, optimizer.alpha, epsilon, decay)
        case "adagrad":
            return torch.optim.Adagrad(parameters, rate, eps=epsilon, weight_decay=decay)
        case algorithm:
            momentum = 0.0 if algorithm == "sgd" else optimizer.momentum
            return torch.optim.SGD(
                parameters, rate, momentum, weight_decay=decay, nesterov=algorithm == "nesterov"
            )


class TorchStep:
    """One training step, repeated: zero the gradients, forward, backward, SGD.

    Convolution and bias are one ``conv2d``; matmul and bias are one ``linear``. Statistics, normalisation and
    running averages are one ``batch_norm``. Activations are in place. The calls are prepared once, so that a step
    costs no more Python than that of an ``nn.Module``.

    Args:
        graph: The step.
        values: One array for each source except data, masks and labels; others are ignored. They are copied.
        dtype: ``torch.float32`` or ``torch.float64``.
        channels_last: Keep images and filters with channels last in memory.
        compiled: Compile the forward and backward passes with ``torch.compile``; the first step waits for it.

    Raises:
        UsageError: A value is missing, or the graph has an operator or an update that is unknown here.
    """

    def __init__(
        self,
        graph: StepGraph,
        values: Mapping[str, Array],
        dtype: Any = torch.float32,
        *,
        channels_last: bool = False,
        compiled: bool = False,
    ) -> None:
        self._graph = graph
        self._reader = GraphReader(graph, values, "autotune/workloads/capture/torch_step.py")
        self._dtype = dtype
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._slots: dict[str, int] = {}
        self._state: list[Tensor | None] = []
        self._calls: list[tuple[Function, tuple[int, ...], int]] = []
        self._parameters = {
            tensor.name: self._load(tensor.name).requires_grad_() for tensor in graph.parameters
        }
        self._statistics = {
            tensor.name: self._load(tensor.name)
            for tensor in graph.tensors
            if tensor.kind == "state"
        }
        for name, tensor in (*self._parameters.items(), *self._statistics.items()):
            self._state[self._slot(name)] = tensor
        for node in self._reader.forward:
            self._translate(node)
        self._masks = {name: self._slot(name) for name in self._reader.masks}
        self._images, self._labels = (
            self._slot(self._reader.images),
            self._slot(self._reader.labels),
        )
        self._loss = self._slot(graph.loss)
        self._computed = torch.compile(self._forward) if compiled else self._forward
        self._optimizer = torch.optim.SGD(self._parameters.values(), lr=self._reader.rate)

    def step(
        self,
        images: Array | Tensor,
        labels: Array | Tensor,
        masks: Mapping[str, Array | Tensor] | None = None,
    ) -> float:
        """Trains on one batch.

        Args:
            images: [n, c, h, w], with the graph's sizes.
            labels: [n], classes from 0.
            masks: Dropout masks by tensor name: 0 or ``1 / (1 - p)``.

        Returns:
            The loss before the update.

        Raises:
            UsageError: A dropout mask is missing.
        """
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._computed(images, labels, masks or {})
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def parameters(self) -> dict[str, Array]:
        """Returns copies of the parameters by name, in the graph's shapes."""
        return {name: tensor.detach().numpy().copy() for name, tensor in self._parameters.items()}

    def running_statistics(self) -> dict[str, Array]:
        """Returns copies of the running averages of batch normalisation by name."""
        return {name: tensor.numpy().copy() for name, tensor in self._statistics.items()}

    def gradients(self) -> dict[str, Array]:
        """Returns copies of the last step's gradients by parameter name.

        Raises:
            UsageError: No step has been run.
        """
        gradients = {}
        for name, tensor in self._parameters.items():
            if tensor.grad is None:
                raise self._reader.error(
                    f"has no gradient of {name!r} yet", hint="run a step first"
                )
            gradients[name] = tensor.grad.numpy().copy()
        return gradients

    def _forward(
        self,
        images: Array | Tensor,
        labels: Array | Tensor,
        masks: Mapping[str, Array | Tensor],
    ) -> Tensor:
        state = self._state.copy()
        state[self._images] = torch.as_tensor(images, dtype=self._dtype).contiguous(
            memory_format=self._layout
        )
        state[self._labels] = torch.as_tensor(labels, dtype=torch.int64)
        for name, slot in self._masks.items():
            if name not in masks:
                raise self._reader.error(
                    f"got no dropout mask {name!r}", hint="give one for each dropout"
                )
            state[slot] = torch.as_tensor(masks[name], dtype=self._dtype)
        for function, sources, target in self._calls:
            state[target] = function(*[state[source] for source in sources])
        loss = state[self._loss]
        assert loss is not None
        return loss

    def _translate(self, node: Node) -> None:
        output, result = node.outputs[0], node.kernel.outputs[0].shape
        shapes = [spec.shape for spec in node.kernel.inputs]
        match node.kernel.operator:
            case Conv2d() | Matmul():
                if self._reader.bias_of(node) is None:
                    self._call(_weighted(node), node.inputs, shapes, output, result)
            case Bias() as operator:
                self._bias(node, operator)
            case BatchStats():
                self._reader.check_statistics(node)
            case BatchNorm() as operator:
                self._batch_norm(node, operator)
            case MaxPool2d() as operator:
                self._call(_max_pool(operator), node.inputs, shapes, output, result)
            case GlobalAvgPool():
                wide = self._wide(node.inputs[0], shapes[0])
                self._call(_average(len(wide)), node.inputs, [wide], output, result)
            case Concat():
                parts = [self._wide(*operand) for operand in zip(node.inputs, shapes, strict=True)]
                if len({part[2:] for part in parts}) > 1:
                    parts = shapes
                joined = (*result[:2], *parts[0][2:])
                self._call(lambda *parts: torch.cat(parts, 1), node.inputs, parts, output, joined)
            case Add():
                self._call(torch.add, node.inputs, [self._reader.shape(output)] * 2, output)
            case Dropout():
                self._call(torch.mul, node.inputs, [self._reader.shape(output)] * 2, output)
            case CrossEntropy():
                self._call(F.cross_entropy, node.inputs, shapes, output)
            case unknown:
                raise self._reader.error(f"has an operator {unknown.name} that is not known here")

    def _wide(self, name: str, operand: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the tensor's own shape if it is the operand's [n, c, s] with s split; otherwise the operand's."""
        shape = self._reader.shape(name)
        return shape if shape[:2] == operand[:2] else operand

    def _bias(self, node: Node, operator: Bias) -> None:
        (x, offsets), output = node.inputs, node.outputs[0]
        producer = self._reader.written.get(x)
        if producer is not None and self._reader.bias_of(producer) is node:
            shapes = [spec.shape for spec in producer.kernel.inputs]
            function, names = _weighted(producer), (*producer.inputs, offsets)
            shapes, result = [*shapes, (operator.c,)], producer.kernel.outputs[0].shape
        else:
            result = self._wide(x, node.kernel.inputs[0].shape)
            function, names = torch.add, node.inputs
            shapes = [result, (operator.c, *[1] * len(result[2:]))]
        self._call(_activated(function, operator.relu), names, shapes, output, result)

    def _batch_norm(self, node: Node, operator: BatchNorm) -> None:
        x, mean, _, gamma, beta = node.inputs
        if not isinstance(self._reader.written[mean].kernel.operator, BatchStats):
            raise self._reader.error(f"normalises by {mean!r}, which is not of the batch")
        average = self._reader.running.get(mean)
        running = average.inputs[:2] if average is not None else ()
        momentum = self._reader.constant(average.inputs[4]) if average is not None else 0.0
        epsilon = operator.epsilon

        def normalise(
            x: Tensor,
            gamma: Tensor,
            beta: Tensor,
            running_mean: Tensor | None = None,
            running_var: Tensor | None = None,
        ) -> Tensor:
            return F.batch_norm(x, running_mean, running_var, gamma, beta, True, momentum, epsilon)

        wide = self._wide(x, node.kernel.inputs[0].shape)
        function = _activated(normalise, operator.relu, operator.relu6)
        names = (x, gamma, beta, *running)
        shapes = [wide, *[(operator.c,)] * (len(names) - 1)]
        self._call(function, names, shapes, node.outputs[0], wide)

    def _call(
        self,
        function: Function,
        names: tuple[str, ...],
        shapes: list[tuple[int, ...]],
        output: str,
        produced: tuple[int, ...] | None = None,
    ) -> None:
        """Appends a call on operands in ``shapes``; ``produced`` is the result's shape if not the output's."""
        sources = tuple(map(self._seen, names, shapes))
        self._calls.append((function, sources, self._slot(output)))
        shape = self._reader.shape(output)
        if produced not in (None, shape):
            self._calls.append((_reshaped(shape), (self._slot(output),), self._slot(output)))

    def _seen(self, name: str, shape: tuple[int, ...]) -> int:
        if self._reader.shape(name) == shape:
            return self._slot(name)
        view = f"{name} as {shape}"
        if view not in self._slots:
            self._calls.append((_reshaped(shape), (self._slot(name),), self._slot(view)))
        return self._slot(view)

    def _slot(self, name: str) -> int:
        if name not in self._slots:
            self._slots[name] = len(self._state)
            self._state.append(None)
        return self._slots[name]

    def _load(self, name: str) -> Tensor:
        array = self._reader.value(name).reshape(self._reader.shape(name))
        tensor = torch.tensor(array, dtype=self._dtype)
        return tensor.contiguous(memory_format=self._layout) if tensor.ndim == 4 else tensor


def _reshaped(shape: tuple[int, ...]) -> Function:
    return lambda x: x.reshape(shape)


def _weighted(node: Node) -> Function:
    operator = node.kernel.operator
    if not isinstance(operator, Conv2d):
        linear: Function = F.linear
        return linear
    rest = (operator.stride, operator.pad, operator.dilation, operator.groups)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.conv2d(x, weight, bias, *rest)

    return convolve


def _max_pool(operator: MaxPool2d) -> Function:
    window, stride, pad = (operator.r, operator.s), operator.stride, operator.pad
    ceil = operator.ceil
    return lambda x: F.max_pool2d(x, window, stride, pad, ceil_mode=ceil)


def _average(axes: int) -> Function:
    if axes == 4:
        return lambda x: F.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
    return lambda x: x.flatten(2).mean(2)


def _activated(function: Function, relu: bool, relu6: bool = False) -> Function:
    """Appends ReLU or ReLU6, in place."""
    if relu6:
        return lambda *operands: F.hardtanh(function(*operands), 0.0, 6.0, inplace=True)
    if relu:
        return lambda *operands: F.relu(function(*operands), inplace=True)
    return function
