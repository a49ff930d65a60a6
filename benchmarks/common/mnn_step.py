"""A training step in MNN: runs the model, weights and data of a step graph through MNN's Python API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from autotune.errors import UsageError
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
from autotune.workloads.capture.graph_reader import Array, GraphReader

Var = Any  # MNN.expr.Var: MNN has no type hints
Function = Callable[..., Var]

_CPU, _HIGH_PRECISION = 0, 1  # values of the enumerators that set_global_executor_config takes


class MnnStep:
    """One training step, repeated: forward, backward, SGD.

    The layers are modules of ``MNN.nn`` (``conv``, ``linear``, ``batch_norm``) with the given weights. Operations
    without weights are calls of ``MNN.expr``. As in any training with MNN's Python API, the expressions are built
    again in each step. Dropout masks are given rather than drawn. Loss and updates are those of the graph, with
    three exceptions in MNN 3.6.1:

    - Its gradient of max pooling is wrong, or ends the process, if windows extend beyond the image. Such an image
      is first enlarged by concatenation, a copy that MNN would not need otherwise. Of the models, only GoogLeNet
      has such poolings.
    - That gradient goes in full to every pixel of a window that equals the maximum, not only to the first. In
      GoogLeNet, where a pooling follows a pooling with overlapping windows, the layers below the last such pair
      learn differently; the time of a step is not affected.
    - Its running variance, which training does not read, is the biased one.

    The number of threads and lazy evaluation are settings of MNN for the whole process: the step created last
    applies.

    Args:
        graph: The step, channels first, its kernels not fused.
        values: One array for each source except the data, masks and labels; others are ignored. The arrays are
            copied.
        threads: Number of MNN's threads.

    Raises:
        UsageError: MNN is not installed, a value is missing, or the graph has an operator, an attribute or an
            update that this module or MNN does not support.
    """

    def __init__(self, graph: StepGraph, values: Mapping[str, Array], *, threads: int = 2) -> None:
        self._graph = graph
        self._reader = GraphReader(graph, values, "benchmarks/mnn_step.py")
        self._mnn = _imported()
        self._operations = _Operations(self._mnn)
        expr, nn = self._mnn.expr, self._mnn.nn
        expr.set_global_executor_config(_CPU, _HIGH_PRECISION, threads)
        expr.lazy_eval(True)  # otherwise the optimiser finds no gradient
        self._module = nn.Module()
        self._layers: list[Var] = []
        self._places: dict[str, tuple[Var, int]] = {}
        self._calls: list[tuple[Function, tuple[str, ...], str]] = []
        self._views: set[str] = set()
        for node in self._reader.forward:
            self._translate(node)
        self._loss = self._operations.constant(np.zeros(1), (1,))
        self._module._add_parameter(self._loss)
        self._module._register_submodules(self._layers)
        self._module.train(True)
        self._optimizer = self._mnn.optim.SGD(self._module, self._reader.rate, 0.0, 0.0)

    def step(self, images: Array, labels: Array, masks: Mapping[str, Array] | None = None) -> float:
        """Trains on one batch.

        Args:
            images: Images of shape [n, c, h, w], in the graph's sizes.
            labels: Classes of shape [n], from 0.
            masks: Dropout masks by tensor name; their values are 0 or ``1 / (1 - p)``.

        Returns:
            The loss before the update.

        Raises:
            UsageError: A dropout mask is missing, or MNN could not compute the step.
        """
        given = {self._reader.images: images, **(masks or {})}
        state = {}
        for name in (self._reader.images, *self._reader.masks):
            if name not in given:
                raise self._reader.error(
                    f"got no dropout mask {name!r}", hint="give one for each dropout"
                )
            state[name] = self._operations.constant(given[name], self._reader.shape(name))
        hot = np.eye(self._graph.classes, dtype=np.float32)[np.asarray(labels)]
        state[self._reader.labels] = self._operations.constant(hot, hot.shape)
        for function, sources, target in self._calls:
            state[target] = function(*[state[source] for source in sources])
        # As a value of the module, the loss is computed along with the gradients. Reading it otherwise would take
        # an extra forward pass.
        self._loss.replace(state[self._graph.loss])
        if not self._optimizer.step(self._loss):
            raise self._reader.error("was not updated by MNN", hint="it prints why")
        return float(self._loss.read().item())

    def parameters(self) -> dict[str, Array]:
        """Returns copies of the parameters by name, in the graph's shapes."""
        return self._read(tensor.name for tensor in self._graph.parameters)

    def running_statistics(self) -> dict[str, Array]:
        """Returns copies of the running averages of batch normalisation by name; the variances are biased."""
        return self._read(tensor.name for tensor in self._graph.tensors if tensor.kind == "state")

    def _read(self, names: Iterable[str]) -> dict[str, Array]:
        arrays = {}
        for name in names:
            layer, place = self._places[name]
            array = layer.parameters[place].read()  # a view of MNN's memory
            arrays[name] = np.array(array, np.float32).reshape(self._reader.shape(name))
        return arrays

    def _translate(self, node: Node) -> None:
        expr, operations, output = self._mnn.expr, self._operations, node.outputs[0]
        match node.kernel.operator:
            case Conv2d() | Matmul():
                if self._reader.bias_of(node) is None:
                    self._weighted(node, None)
            case Bias(relu=relu):
                producer = self._reader.written.get(node.inputs[0])
                if producer is None or self._reader.bias_of(producer) is not node:
                    raise self._reader.error(
                        f"has a bias {node.inputs[1]!r} that is not of one product"
                    )
                self._weighted(producer, node)
                if relu:
                    self._calls.append((expr.relu, (output,), output))
            case BatchStats():
                self._reader.check_statistics(node)
            case BatchNorm() as operator:
                self._batch_norm(node, operator)
            case MaxPool2d() as operator:
                self._calls.append((operations.max_pool(operator), node.inputs, output))
            case GlobalAvgPool():
                shape = self._reader.shape(node.inputs[0])
                self._calls.append((operations.average(shape), node.inputs, output))
            case Concat():
                self._calls.append((operations.concat, node.inputs, output))
            case Add():
                self._calls.append((expr.add, node.inputs, output))
            case Dropout():
                shape = self._reader.shape(output)
                sources = (self._seen(node.inputs[0], shape), node.inputs[1])
                self._calls.append((operations.masked, sources, output))
            case CrossEntropy():
                self._calls.append((operations.cross_entropy, node.inputs, output))
            case unknown:
                raise self._reader.error(f"has an operator {unknown.name} that is not known here")

    def _weighted(self, product: Node, bias: Node | None) -> None:
        """Appends a convolution or fully connected layer, with its bias if it has one."""
        x, weight = product.inputs
        operator = product.kernel.operator
        if isinstance(operator, Conv2d):
            layer = self._convolution(operator, bias is not None)
        else:
            x = self._seen(x, product.kernel.inputs[0].shape)
            out_features, in_features = product.kernel.inputs[1].shape
            layer = self._mnn.nn.linear(in_features, out_features, bias is not None)
        names = (weight,) if bias is None else (bias.inputs[1], weight)
        self._load(layer, names)
        output = (product if bias is None else bias).outputs[0]
        self._calls.append((layer.forward, (x,), output))

    def _convolution(self, operator: Conv2d, bias: bool) -> Var:
        depthwise = operator.groups > 1
        if operator.channels_last or (
            depthwise and not operator.groups == operator.c == operator.k
        ):
            raise self._reader.error(
                f"has a convolution {operator.label()} that is neither ungrouped nor depthwise, or channels last",
                hint="MNN.nn.conv knows no other",
            )
        return self._mnn.nn.conv(
            operator.c,
            operator.k,
            [operator.s, operator.r],
            list(operator.stride[::-1]),
            list(operator.pad[::-1]),
            list(operator.dilation[::-1]),
            depthwise=depthwise,
            bias=bias,
            padding_mode=self._mnn.expr.CAFFE,
        )

    def _batch_norm(self, node: Node, operator: BatchNorm) -> None:
        x, mean, _, gamma, beta = node.inputs
        average = self._reader.running.get(mean)
        if average is None:
            raise self._reader.error(f"keeps no running averages of {mean!r}, as MNN does")
        kept = 1.0 - self._reader.constant(average.inputs[4])
        axes = len(self._reader.shape(x))
        layer = self._mnn.nn.batch_norm(operator.c, axes, kept, operator.epsilon)
        running_mean, running_variance = average.inputs[:2]
        self._load(layer, (gamma, beta, running_variance, running_mean))
        output = node.outputs[0]
        self._calls.append((layer.forward, (x,), output))
        if operator.activated:
            function = self._mnn.expr.relu6 if operator.relu6 else self._mnn.expr.relu
            self._calls.append((function, (output,), output))

    def _seen(self, name: str, shape: tuple[int, ...]) -> str:
        """Returns the name of a tensor in another shape, such as a flattened image."""
        if self._reader.shape(name) == shape:
            return name
        view = f"{name} as {shape}"
        if view not in self._views:
            self._views.add(view)
            self._calls.append((self._operations.reshape(shape), (name,), view))
        return view

    def _load(self, layer: Var, names: tuple[str, ...]) -> None:
        """Loads a layer's values in the order of its parameters, and keeps the layer."""
        variables = []
        for place, (name, old) in enumerate(zip(names, layer.parameters, strict=True)):
            variable = self._operations.constant(self._reader.value(name), tuple(old.shape))
            if self._graph.by_name[name].kind == "parameter":
                variable.fix_as_trainable()
            variables.append(variable)
            if name in self._places:
                raise self._reader.error(f"has two layers that share {name!r}")
            self._places[name] = (layer, place)
        if not layer.load_parameters(variables):
            raise self._reader.error(f"has {names}, which MNN does not take")
        self._layers.append(layer)


class _Operations:
    """Operations without weights, as functions of ``MNN.expr``.

    Args:
        mnn: The module ``MNN``.
    """

    def __init__(self, mnn: ModuleType) -> None:
        self._mnn, self._expr = mnn, mnn.expr

    def constant(self, array: Array, shape: tuple[int, ...]) -> Var:
        """Returns a constant."""
        stored = np.ascontiguousarray(array, np.float32).reshape(shape)
        return self._expr.const(stored, list(shape), self._expr.NCHW)

    def max_pool(self, operator: MaxPool2d) -> Function:
        """Returns a max pooling; images are enlarged first if windows extend beyond them. See `MnnStep`."""
        expr = self._expr
        n, c, h, w = operator.n, operator.c, operator.h, operator.w
        window, stride = [operator.s, operator.r], list(operator.stride[::-1])
        top, left = operator.pad
        bottom = max((operator.oh - 1) * operator.stride[0] + operator.r - top - h, 0)
        right = max((operator.ow - 1) * operator.stride[1] + operator.s - left - w, 0)
        rows = [self._border((n, c, size, w)) for size in (top, bottom)]
        columns = [self._border((n, c, top + h + bottom, size)) for size in (left, right)]

        def pool(x: Var) -> Var:
            for axis, (before, after) in enumerate((rows, columns), start=2):
                if before or after:
                    x = expr.concat([*before, x, *after], axis)
            return expr.max_pool(x, window, stride, expr.VALID, [0, 0])

        return pool

    def _border(self, shape: tuple[int, ...]) -> list[Var]:
        """Returns a border of the lowest values, which contain no maximum; empty if it has no pixels."""
        if 0 in shape:
            return []
        lowest = np.full(shape, np.finfo(np.float32).min, np.float32)
        border = self._expr.convert(self.constant(lowest, shape), self._expr.NC4HW4)
        border.fix_as_const()
        return [border]

    def average(self, shape: tuple[int, ...]) -> Function:
        """Returns global average pooling for images of a shape."""
        expr = self._expr
        n, c, h, w = shape

        def average(x: Var) -> Var:
            return expr.reshape(expr.convert(expr.avg_pool(x, [w, h], [1, 1]), expr.NCHW), [n, c])

        return average

    def reshape(self, shape: tuple[int, ...]) -> Function:
        """Returns a function that changes the shape of a tensor."""
        expr = self._expr

        def reshape(x: Var) -> Var:
            return expr.reshape(expr.convert(x, expr.NCHW), list(shape))

        return reshape

    def concat(self, *parts: Var) -> Var:
        """Joins channels."""
        return self._expr.concat(parts, 1)

    def masked(self, x: Var, mask: Var) -> Var:
        """Applies a dropout mask."""
        return x * self._expr.convert(mask, x.data_format)

    def cross_entropy(self, logits: Var, labels: Var) -> Var:
        """Computes the mean cross entropy; the labels are one-hot."""
        return self._mnn.nn.loss.cross_entropy(self._expr.softmax(logits, 1), labels)


def _imported() -> ModuleType:
    try:
        return import_module("MNN")
    except ImportError as error:
        raise UsageError("MNN is not installed", hint="pip install MNN==3.6.1") from error
