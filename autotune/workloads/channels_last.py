"""Rewrites a step to channels last, for all its kernels together."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from autotune.workloads.graph import Node, StepGraph, Tensor
from autotune.workloads.layout import Layout, filters_last, images_last, with_channels_last
from autotune.workloads.layout_check import agrees
from autotune.workloads.operators import Conv2d, Kernel, Matmul

LOGGER = logging.getLogger("autotune.workloads")


def channels_last(graph: StepGraph) -> StepGraph:
    """Stores all images and filters of a step with channels last.

    No kernel is added, because a convolution writes the order that the next kernel reads. If a fully connected
    layer reads an image as features, the columns of its weight are reordered instead. Values from outside are
    reordered when they are stored, by `Tensor.layout`.

    Args:
        graph: A valid step with channels first and without epilogues.

    Returns:
        A valid step that computes the same. If a kernel sees a tensor in a shape that would mean other elements
        after reordering (a split or flattened image), the step is returned unchanged, with a warning in the log.
    """
    return _Rewriter(graph).result()


class _Rewriter:
    def __init__(self, graph: StepGraph) -> None:
        self._graph = graph
        self._layouts: dict[str, Layout] = {}
        filters = {tensor.name for tensor in graph.parameters}
        for tensor in graph.tensors:
            image = len(tensor.shape) == 4 and tensor.kind in ("input", "activation", "gradient")
            if image and tensor.name.rpartition(".grad")[0] not in filters:
                self._layouts[tensor.name] = images_last(tensor.shape)

    def result(self) -> StepGraph:
        nodes = tuple(self._rewritten(node) for node in self._graph.nodes)
        for node in self._graph.nodes:
            kernel = Kernel(with_channels_last(node.kernel.operator), node.kernel.role)
            if not agrees(node, kernel, self._layouts):
                LOGGER.warning(
                    "%s: %s (%s) sees an image in another shape, so the step keeps its channels first",
                    self._graph.name, node.place, node.kernel.operator.name,
                )  # fmt: skip
                return self._graph
        tensors = tuple(self._stored(tensor) for tensor in self._graph.tensors)
        graph = replace(self._graph, tensors=tensors, nodes=nodes)
        graph.validate()
        return graph

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._graph.by_name[name].shape

    def _rewritten(self, node: Node) -> Node:
        operator, role = node.kernel.operator, node.kernel.role
        if isinstance(operator, Conv2d):
            filters = node.outputs[0] if role == "weight_grad" else node.inputs[1]
            self._layouts[filters] = filters_last(self._shape(filters))
        elif isinstance(operator, Matmul):
            self._matmul(node)
        else:
            self._spread(node)
        stored = with_channels_last(operator)
        if isinstance(stored, Conv2d):
            stored = as_gemm(stored)
        return replace(node, kernel=Kernel(stored, role))

    def _matmul(self, node: Node) -> None:
        """Reorders the columns of a weight that multiplies a flattened image, and of all tensors of its shape."""
        role = node.kernel.role
        if role == "data_grad":
            weight = self._layouts.get(node.inputs[1])
            if weight is not None:
                (dx,) = node.outputs
                view = (self._shape(dx)[0], *weight.view[1:])
                self._layouts[dx] = Layout(self._shape(dx), view, weight.order)
            return
        image = self._layouts.get(node.inputs[0])
        if image is not None:
            weight_name = node.inputs[1] if role == "forward" else node.outputs[0]
            shape = self._shape(weight_name)
            self._layouts[weight_name] = Layout(shape, (shape[0], *image.view[1:]), image.order)

    def _spread(self, node: Node) -> None:
        """Passes the layout through element-wise kernels; an update passes the gradient's to what it replaces."""
        names = (*node.inputs, *node.outputs)
        known = [self._layouts[name] for name in names if name in self._layouts]
        if not known or node.kernel.streamed is None:
            return
        for name in names:
            tensor = self._graph.by_name[name]
            if name not in self._layouts and tensor.elements == math.prod(known[0].view):
                self._layouts[name] = replace(known[0], shape=tensor.shape)

    def _stored(self, tensor: Tensor) -> Tensor:
        layout = self._layouts.get(tensor.name)
        if layout is None:
            return tensor
        stored = tuple(layout.view[axis] for axis in layout.order)
        shape = stored if layout.view == layout.shape else tensor.shape
        return replace(tensor, shape=shape, layout=layout)


def as_gemm(conv: Conv2d) -> Conv2d:
    """A 1x1 convolution as the matrix product that it is: one row of all the batch's pixels."""
    plain = (conv.r, conv.s, conv.pad, conv.stride, conv.groups) == (1, 1, (0, 0), (1, 1), 1)
    return replace(conv, n=1, h=1, w=conv.n * conv.h * conv.w) if plain else conv
