"""Reverse-mode differentiation of a training step while it is recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.workloads.graph import Initial, Kind, Node, StepGraph, Tensor
from autotune.workloads.layout import Layout
from autotune.workloads.operators import Add, DType, Kernel, Operator, Role


@dataclass(frozen=True)
class Value:
    """The result of a layer: a tensor of the graph, seen in some shape.

    Attributes:
        name: The tensor's name.
        shape: [n, c, h, w] or [n, features]; may be a view of the tensor's own shape.
        needs_grad: Whether it depends on a parameter, so that a gradient must flow back.
    """

    name: str
    shape: tuple[int, ...]
    needs_grad: bool


class StepRecorder:
    """Holds the tensors and nodes of a step, and a tape of functions that append its backward pass.

    A layer defines its tensors, runs its forward kernels, and records a function. Given the name of the output's
    gradient, this function runs the backward kernels and contributes to the gradients of the inputs. The tape is
    played from its end, so a gradient is complete when it is needed.
    Args:
        name: The model's name, for messages.
        batch: Number of samples in a step.
    """

    def __init__(self, name: str, batch: int) -> None:
        self._name = name
        self._batch = batch
        self._tensors: dict[str, Tensor] = {}
        self._nodes: list[Node] = []
        self._tape: list[Callable[[], None]] = []
        self._gradients: dict[str, str] = {}

    def define(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: Kind,
        dtype: DType = "float32",
        initial: Initial | None = None,
    ) -> str:
        """Adds a tensor and returns its name.

        Raises:
            UsageError: The name is taken.
        """
        if name in self._tensors:
            raise UsageError(
                f"{self._name}: there is a tensor {name!r} already",
                hint="give each layer its own place",
            )
        self._tensors[name] = Tensor(name, shape, dtype, kind, initial)
        return name

    def tensor(self, name: str) -> Tensor:
        """Returns a tensor by its name."""
        return self._tensors[name]

    def store(self, name: str, order: tuple[int, ...]) -> None:
        """Stores a tensor with its axes in another order, slowest first."""
        tensor = self._tensors[name]
        layout = Layout(tensor.shape, tensor.shape, order)
        stored = tuple(tensor.shape[axis] for axis in order)
        self._tensors[name] = replace(tensor, shape=stored, layout=layout)

    def parameter(self, name: str, shape: tuple[int, ...], initial: Initial) -> Value:
        """Adds a parameter, or returns an existing one of that name, which the layers then share.

        Raises:
            UsageError: The name is taken by a parameter of another shape or by another tensor.
        """
        before = self._tensors.get(name)
        if before is None or (before.kind, before.shape) != ("parameter", shape):
            self.define(name, shape, "parameter", initial=initial)
        return Value(name, shape, True)

    def constant(self, name: str, value: float) -> str:
        """Adds a constant with one element, unless it exists, and returns its name."""
        if name in self._tensors:
            return name
        return self.define(name, (1,), "constant", initial=Initial("constant", value))

    def gradient_of(self, x: Value) -> str:
        """Adds a tensor for a gradient of ``x``, numbered if it is not the first."""
        name, number = f"{x.name}.grad", 1
        while name in self._tensors:
            number += 1
            name = f"{x.name}.grad{number}"
        return self.define(name, x.shape, "gradient")

    def run(
        self,
        place: str,
        operator: Operator,
        role: Role,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
    ) -> None:
        """Appends a node."""
        self._nodes.append(Node(Kernel(operator, role), inputs, outputs, place))

    def record(self, y: Value, backward: Callable[[str], None]) -> Value:
        """Adds ``backward`` to the tape. It will be called with the name of the gradient of ``y``."""

        def step() -> None:
            gradient = self._gradients.get(y.name)
            if gradient is not None and y.needs_grad:
                backward(gradient)

        self._tape.append(step)
        return y

    def contribute(self, x: Value, gradient: str) -> None:
        """Adds the tensor ``gradient`` to the gradient of ``x``, with an ``Add`` node if there already is one.

        Does nothing if ``x`` needs no gradient.
        """
        if not x.needs_grad:
            return
        before = self._gradients.get(x.name)
        if before is not None:
            total = self.gradient_of(x)
            self.run(x.name, Add(math.prod(x.shape)), "data_grad", (before, gradient), (total,))
            gradient = total
        self._gradients[x.name] = gradient

    def differentiate(self) -> list[tuple[Tensor, str]]:
        """Plays the tape. The gradient of the loss's operand must have been contributed.

        Returns:
            Each parameter with the name of its gradient.

        Raises:
            UsageError: The loss does not depend on some parameter.
        """
        for step in reversed(self._tape):
            step()
        gradients = []
        for parameter in [t for t in self._tensors.values() if t.kind == "parameter"]:
            gradient = self._gradients.get(parameter.name)
            if gradient is None:
                raise UsageError(
                    f"{self._name}: the loss does not depend on {parameter.name}",
                    hint="remove the layer or use its output",
                )
            gradients.append((parameter, gradient))
        return gradients

    def graph(self, loss: str) -> StepGraph:
        """Returns the validated step.

        Args:
            loss: Name of the loss.
        """
        tensors, nodes = tuple(self._tensors.values()), tuple(self._nodes)
        graph = StepGraph(self._name, self._batch, tensors, nodes, loss)
        graph.validate()
        return graph
