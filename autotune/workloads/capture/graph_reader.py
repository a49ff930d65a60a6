"""Reads from a step graph what steps in other frameworks need: its forward nodes, its data and its learning rate.

Backward pass and updates are the framework's own. So the graph's can be checked against them, and their times can
be compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads import (
    BatchNorm,
    Bias,
    Conv2d,
    Dropout,
    Matmul,
    Node,
    RunningStats,
    Sgd,
    StepGraph,
)

Array = NDArray[Any]


class GraphReader:
    """A step graph in the form that a framework with its own differentiation needs.

    Args:
        graph: The step, with channels first and without fused kernels.
        values: One array for each source except data, masks and labels; others are ignored.
        extend: The file to extend if the graph has something unknown.

    Raises:
        UsageError: A value is missing, or there is not exactly one input, one label and one plain SGD learning
            rate.

    Attributes:
        forward: The forward nodes, in order.
        written: The forward node that writes a tensor, by the tensor's name.
        running: The updates of running averages, by the name of the batch's statistic.
        rate: The learning rate.
        images: Name of the input.
        labels: Name of the labels.
        masks: Names of the dropout masks.
    """

    def __init__(self, graph: StepGraph, values: Mapping[str, Array], extend: str) -> None:
        self._graph = graph
        self._values = values
        self._extend = extend
        self.forward = [node for node in graph.nodes if node.kernel.role == "forward"]
        self.written = {name: node for node in self.forward for name in node.outputs}
        self._readers: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.forward:
            for name in node.inputs:
                self._readers[name].append(node)
        self.running: dict[str, Node] = {}
        self.rate = self._read_updates()
        self.masks = [
            node.inputs[1] for node in self.forward if isinstance(node.kernel.operator, Dropout)
        ]
        images = [t.name for t in graph.tensors if t.kind == "input" and t.name not in self.masks]
        labels = [t.name for t in graph.tensors if t.kind == "label"]
        if len(images) != 1 or len(labels) != 1:
            raise self.error(f"has the inputs {images} and labels {labels}, not one of each")
        self.images, self.labels = images[0], labels[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor."""
        return self._graph.by_name[name].shape

    def value(self, name: str) -> Array:
        """Returns the value of a source.

        Raises:
            UsageError: None was given.
        """
        if name not in self._values:
            raise self.error(f"got no value for {name!r}", hint="initial_values(graph, seed)")
        return np.asarray(self._values[name])

    def constant(self, name: str) -> float:
        """Returns the value of a source with one element.

        Raises:
            UsageError: None was given.
        """
        return float(self.value(name).item())

    def bias_of(self, node: Node) -> Node | None:
        """Returns the bias node that alone reads a node's product; None if there is none."""
        if not isinstance(node.kernel.operator, Conv2d | Matmul):
            return None
        readers = self._readers[node.outputs[0]]
        if len(readers) != 1 or readers[0].inputs[0] != node.outputs[0]:
            return None
        channels = node.kernel.outputs[0].shape[1]
        operator = readers[0].kernel.operator
        return readers[0] if isinstance(operator, Bias) and operator.c == channels else None

    def check_statistics(self, node: Node) -> None:
        """Refuses batch statistics that are used for more than the normalisation of their layer.

        Raises:
            UsageError: They are used elsewhere.
        """
        for name in node.outputs:
            for reader in self._readers[name]:
                normalises = isinstance(reader.kernel.operator, BatchNorm)
                if not normalises or reader.inputs[:3] != (node.inputs[0], *node.outputs):
                    raise self.error(f"uses {name!r} for more than the normalisation of its layer")

    def error(self, what: str, hint: str = "") -> UsageError:
        """Returns an error that names the step."""
        return UsageError(
            f"step graph {self._graph.name!r} {what}", hint=hint or f"extend {self._extend}"
        )

    def _read_updates(self) -> float:
        rates = set()
        for node in self._graph.nodes:
            match node.kernel.operator:
                case RunningStats():
                    self.running[node.inputs[2]] = node
                case Sgd():
                    rates.add(self.constant(node.inputs[2]))
                case _ if node.kernel.role == "update":
                    raise self.error(f"has an update {node.kernel.name} other than plain SGD")
        if len(rates) != 1:
            raise self.error(f"has {len(rates)} learning rates, not one")
        return rates.pop()
