"""A whole training step as data: tensors, nodes in order of execution, and its tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.data import IMAGE_AXES
from autotune.workloads.layout import Layout
from autotune.workloads.operators import DType, Expression, Kernel, TensorSpec
from autotune.workloads.operators.base import BYTES_PER_ELEMENT
from autotune.workloads.references import reference

Kind = Literal[
    "input",
    "label",
    "parameter",
    "state",
    "constant",
    "activation",
    "gradient",
    "clipping",
    "updated",
]

RANDOM = frozenset(("mask", "noise"))
"""Distributions of inputs that are drawn afresh for each step."""

SOURCE_KINDS: frozenset[Kind] = frozenset(("input", "label", "parameter", "state", "constant"))


def part_name(name: str, part: int) -> str:
    """Returns the name that a tensor of the plain step has in a part of the batch; parts count from 0."""
    return name if part == 0 else f"{name}#{part + 1}"


def whole_of(name: str) -> tuple[str, int]:
    """Returns the plain step's name of a part's tensor, and the number of the part: the inverse of `part_name`."""
    base, mark, number = name.rpartition("#")
    return (base, int(number) - 1) if mark and number.isdecimal() else (name, 0)


@dataclass(frozen=True)
class Initial:
    """How the first value of a source tensor is drawn.

    Attributes:
        distribution: ``uniform`` in [-value, value]; ``normal`` with mean 0 and deviation
            ``value``; ``constant``, ``value`` everywhere; ``classes``, integers in
            0 .. value - 1; ``mask``, a dropout mask with probability ``value`` of 0; ``noise``, normal as
            above, but drawn afresh for each step, as masks are.
        value: The distribution's one parameter.
    """

    distribution: Literal["uniform", "normal", "constant", "classes", "mask", "noise"]
    value: float


@dataclass(frozen=True)
class Tensor:
    """A value of the step, written once.

    Attributes:
        name: Unique in the graph.
        shape: Sizes, slowest varying first.
        dtype: Element type.
        kind: ``input`` (given for each step: the data, dropout masks), ``label``, ``parameter``, ``state`` (running
            statistics, an optimiser's moments) and ``constant`` come from outside. ``activation``, ``gradient``,
            ``clipping`` (a sum over all gradients) and ``updated`` (a parameter or state after the
            step) are computed.
        initial: How to draw the first value; None for computed tensors.
        layout: How it is stored, if not as the model defines it; ``shape`` is then the stored shape.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    kind: Kind
    initial: Initial | None = None
    layout: Layout | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * BYTES_PER_ELEMENT

    @property
    def counts(self) -> int | None:
        """How many values it takes, from 0, if they are whole numbers; None for any numbers."""
        if self.initial is not None and self.initial.distribution == "classes":
            return int(self.initial.value)
        return 2 if self.dtype == "int32" else None

    def stored(self, array: NDArray[Any]) -> NDArray[Any]:
        """Converts a value from the model's own shape and order to the stored one."""
        return array if self.layout is None else self.layout.store(array).reshape(self.shape)

    def restored(self, array: NDArray[Any]) -> NDArray[Any]:
        """Converts a stored value back to the model's own shape and order."""
        return array if self.layout is None else self.layout.restore(array)


@dataclass(frozen=True)
class Node:
    """One call of a kernel.

    Attributes:
        kernel: The kernel.
        inputs: Names of the tensors that it reads, in the order of ``kernel.inputs``. A tensor may have another
            shape than the operand: buffers are contiguous, so [n,c,h,w] is also [n,c,h*w] and [n,c*h*w]. Only the
            number of elements must agree.
        outputs: Names of the tensors that it writes, in the order of ``kernel.outputs``.
        place: The layer that it belongs to, such as ``fire2.squeeze``.
    """

    kernel: Kernel
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: str

    @property
    def replaced(self) -> tuple[tuple[str, str], ...]:
        """Pairs of tensors of an update: an operand that it replaces, and the output that replaces it."""
        old = (self.inputs[at] for at in self.kernel.replaces)
        return tuple(zip(old, self.outputs, strict=False))


@dataclass(frozen=True)
class Task:
    """A distinct kernel of a step, which is tuned once and called ``count`` times.

    Attributes:
        kernel: The kernel.
        count: Number of its calls in a step.
        places: The layers that call it, one per call, in order of execution.
    """

    kernel: Kernel
    count: int
    places: tuple[str, ...]


@dataclass(frozen=True)
class StepGraph:
    """A training step: forward, loss, backward and update, in SSA form.

    Attributes:
        name: The model's name.
        batch: Number of samples in a step.
        tensors: Every tensor, in order of definition.
        nodes: All nodes, in order of execution.
        loss: Name of the loss, a tensor with one element.
    """

    name: str
    batch: int
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    loss: str

    @cached_property
    def by_name(self) -> Mapping[str, Tensor]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """Tensors that come from outside, in order of definition."""
        return tuple(tensor for tensor in self.tensors if tensor.kind in SOURCE_KINDS)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Trained parameters, in order of definition."""
        return tuple(tensor for tensor in self.tensors if tensor.kind == "parameter")

    @property
    def parameter_count(self) -> int:
        """Number of trained values."""
        return sum(tensor.elements for tensor in self.parameters)

    @cached_property
    def described(self) -> bool:
        """Whether kernels of forward or backward are described by expressions, as in steps that PyTorch traced."""
        return any(
            isinstance(node.kernel.operator, Expression) and node.kernel.role == "forward"
            for node in self.nodes
        )

    @property
    def data(self) -> tuple[Tensor, ...]:
        """What each step is given, but for the random numbers that it draws: inputs and labels."""
        return tuple(
            tensor
            for tensor in self.tensors
            if tensor.kind in ("input", "label")
            and (tensor.initial is None or tensor.initial.distribution not in RANDOM)
        )

    @property
    def parts(self) -> int:
        """Number of micro-batches in which the step takes its batch."""
        return 1 + max((whole_of(tensor.name)[1] for tensor in self.data), default=0)

    @property
    def classifies(self) -> bool:
        """Whether a step takes one image, sequence or vector of any floats and one class for each sample."""
        first = [tensor for tensor in self.data if whole_of(tensor.name)[1] == 0]
        inputs = [tensor for tensor in first if tensor.kind == "input"]
        labels = [tensor for tensor in first if tensor.kind == "label"]
        return not self.described or (
            len(inputs) == len(labels) == 1
            and (inputs[0].dtype, labels[0].dtype) == ("float32", "int32")
            and not inputs[0].counts
            and len(labels[0].shape) == 1
            and 1 < len(inputs[0].shape) <= 1 + IMAGE_AXES
        )

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a sample as the model defines it: channels, height and width of an image."""
        data = next(tensor for tensor in self.tensors if tensor.kind == "input")
        shape = data.layout.shape if data.layout else data.shape
        return tuple(shape[1:])

    @property
    def classes(self) -> int:
        """Number of classes."""
        labels = next(tensor for tensor in self.tensors if tensor.kind == "label")
        return 0 if labels.initial is None else int(labels.initial.value)

    @property
    def flops(self) -> int:
        """Floating-point operations of a step."""
        return sum(node.kernel.flops for node in self.nodes)

    @cached_property
    def updates(self) -> Mapping[str, str]:
        """For each parameter or state, the tensor that holds it after the step."""
        after = dict(pair for node in self.nodes for pair in node.replaced)
        latest = {}
        for tensor in self.tensors:
            if tensor.kind in ("parameter", "state"):
                name = after[tensor.name]
                while name in after:
                    name = after[name]
                latest[tensor.name] = name
        return latest

    def validate(self) -> None:
        """Checks that the graph is in SSA form and that tensors fit their operands.

        Raises:
            UsageError: A tensor is defined or written twice, read before it is written, missing, or of the wrong
                size or type; a parameter or state does not have exactly one update; or the loss is invalid.
        """
        counts = Counter(tensor.name for tensor in self.tensors)
        for name, count in counts.items():
            if count > 1:
                raise self._error(f"tensor {name!r} is defined {count} times")
        written = {tensor.name for tensor in self.sources}
        for node in self.nodes:
            where = f"{node.place} ({node.kernel.name})"
            self._check_operands(where, "input", node.inputs, node.kernel.inputs)
            self._check_operands(where, "output", node.outputs, node.kernel.outputs)
            for name in node.inputs:
                if name not in written:
                    raise self._error(f"{where} reads {name!r} before it is written")
            for name in node.outputs:
                if name in written:
                    raise self._error(f"{where} writes {name!r}, which already has a value")
                if (self.by_name[name].kind == "updated") != bool(node.kernel.replaces):
                    raise self._error(f"{where} writes {name!r} of kind {self.by_name[name].kind}")
                written.add(name)
        for tensor in self.tensors:
            if tensor.name not in written:
                raise self._error(f"tensor {tensor.name!r} is never written")
        updated = Counter(old for node in self.nodes for old, _ in node.replaced)
        lasting = {t.name for t in self.tensors if t.kind in ("parameter", "state")}
        again = {t.name for t in self.tensors if t.kind == "updated"}
        if not lasting <= set(updated) <= lasting | again or max(updated.values(), default=1) > 1:
            raise self._error("the updates are not one for each parameter and state")
        if self.loss not in self.by_name or self.by_name[self.loss].elements != 1:
            raise self._error(f"loss {self.loss!r} is not a tensor with one element")

    def _check_operands(
        self, where: str, side: str, names: tuple[str, ...], specs: tuple[TensorSpec, ...]
    ) -> None:
        if len(names) != len(specs):
            raise self._error(f"{where} has {len(names)} {side}s, its kernel {len(specs)}")
        for name, spec in zip(names, specs, strict=True):
            tensor = self.by_name.get(name)
            if tensor is None:
                raise self._error(f"{where} names a tensor {name!r} that is not defined")
            if (tensor.elements, tensor.dtype) != (spec.elements, spec.dtype):
                raise self._error(
                    f"{where}: {side} {spec.name} is {spec.dtype}{list(spec.shape)} but tensor "
                    f"{name!r} is {tensor.dtype}{list(tensor.shape)}"
                )

    def _error(self, message: str) -> UsageError:
        return UsageError(
            f"step graph {self.name!r}: {message}", hint="build the graph with StepBuilder"
        )


def tasks(graph: StepGraph) -> tuple[Task, ...]:
    """Returns the distinct kernels of a step, in order of first appearance."""
    places: dict[Kernel, list[str]] = {}
    for node in graph.nodes:
        places.setdefault(node.kernel, []).append(node.place)
    return tuple(Task(kernel, len(where), tuple(where)) for kernel, where in places.items())


def evaluate(
    graph: StepGraph, values: Mapping[str, NDArray[Any]], wanted: Iterable[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Runs a step with the float64 references, as its ground truth.

    Args:
        graph: A valid step.
        values: One array for each source tensor, of any number type.
        wanted: Names of tensors to compute. Only the nodes that they need are run, and other values are dropped as
            soon as possible. None computes and keeps everything.

    Returns:
        The tensors' values in their shapes, float64 or int32: all of them, or the wanted ones.

    Raises:
        UsageError: A source is missing or has the wrong size, or a wanted tensor does not exist.
    """
    keep = set(graph.by_name) if wanted is None else set(wanted)
    if unknown := sorted(keep - set(graph.by_name)):
        raise UsageError(
            f"step graph {graph.name!r} has no tensor {', '.join(map(repr, unknown))}",
            hint="see StepGraph.by_name for the names",
        )
    needed = set(keep)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    nodes.reverse()
    state: dict[str, NDArray[Any]] = {}
    for tensor in graph.sources:
        if tensor.name in needed:
            if tensor.name not in values:
                raise UsageError(
                    f"step graph {graph.name!r}: no value for the {tensor.kind} {tensor.name!r}",
                    hint="initial_values(graph, seed) makes them",
                )
            state[tensor.name] = _shaped(values[tensor.name], tensor)
    last_use = {name: at for at, node in enumerate(nodes) for name in (*node.inputs, *node.outputs)}
    for at, node in enumerate(nodes):
        results = reference(node.kernel, [state[name] for name in node.inputs])
        for name, result in zip(node.outputs, results, strict=True):
            state[name] = _shaped(result, graph.by_name[name])
        for name in {*node.inputs, *node.outputs}:
            if last_use[name] == at and name not in keep:
                del state[name]
    return {name: value for name, value in state.items() if name in keep}


def _shaped(array: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    if array.size != tensor.elements:
        raise UsageError(
            f"tensor {tensor.name!r} got {array.size} elements",
            hint=f"its shape is {tensor.shape}, {tensor.elements} elements",
        )
    dtype = np.int32 if tensor.dtype == "int32" else np.float64
    return np.asarray(array, dtype).reshape(tensor.shape)
