"""A step that takes its batch in parts (micro-batches) and accumulates the gradients, to need less memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from autotune.workloads.expressions import Axis, Described, Load, Operand, Stage, apply, number
from autotune.workloads.graph import (
    SOURCE_KINDS,
    Node,
    StepGraph,
    Tensor,
    part_name,
    whole_of,
)
from autotune.workloads.operators import Add, CrossEntropy, Expression, Kernel

_GIVEN_AFRESH = ("input", "label")


def accumulated(graph: StepGraph, parts: int) -> StepGraph:
    """Repeats forward and backward pass for each part of the batch, then updates once, by the summed gradients.

    The loss is the mean over the whole batch. In a described step it is the mean of the parts' losses, and a
    gradient is the mean of the parts' gradients, as with gradient accumulation in PyTorch. Batch normalisation sees
    one part at a time: each part is normalised by its own statistics, and updates the running statistics in turn.

    Args:
        graph: A valid step without epilogues, for one part.
        parts: Number of parts.

    Returns:
        A valid step for ``parts`` times the samples.
    """
    if parts == 1:
        return graph
    tensors: dict[str, Tensor] = {t.name: t for t in graph.tensors if _shared(t)}
    nodes: list[Node] = []
    sums: dict[str, str] = {}
    optimiser = _optimiser(graph)
    updating = {id(node) for node in optimiser}
    updated = {name for node in optimiser for name in node.outputs}
    computed = {name for node in graph.nodes for name in node.outputs} - updated
    gradients = {name for node in optimiser for name in node.inputs if name in computed}
    states: dict[str, str] = {}
    for part in range(parts):
        for tensor in graph.tensors:
            if not _shared(tensor) and tensor.name not in updated:
                tensors[part_name(tensor.name, part)] = replace(
                    tensor, name=part_name(tensor.name, part)
                )
        for node in graph.nodes:
            if id(node) in updating:
                continue
            copy = _copied(graph, node, part, parts, states)
            nodes.append(copy)
            for name, written in zip(node.outputs, copy.outputs, strict=True):
                if name not in gradients and name != graph.loss:
                    continue
                if part == 0:
                    sums[name] = written
                    continue
                total = f"{written}.sum"
                tensors[total] = replace(tensors[written], name=total)
                share = 1.0 / parts if part == parts - 1 else 1.0
                adding = _adding(graph, tensors[total].elements, share)
                nodes.append(Node(adding, (sums[name], written), (total,), copy.place))
                sums[name] = total
        states |= {
            old: part_name(new, part)
            for node in graph.nodes
            if id(node) not in updating
            for old, new in node.replaced
        }
    for node in optimiser:
        for name in node.outputs:
            tensors[name] = graph.by_name[name]
        nodes.append(replace(node, inputs=tuple(sums.get(name, name) for name in node.inputs)))
    result = replace(
        graph,
        batch=graph.batch * parts,
        tensors=tuple(tensors.values()),
        nodes=tuple(nodes),
        loss=sums[graph.loss],
    )
    result.validate()
    return result


def _shared(tensor: Tensor) -> bool:
    """Returns whether all parts use the same tensor."""
    return tensor.kind in SOURCE_KINDS and tensor.kind not in _GIVEN_AFRESH


def _optimiser(graph: StepGraph) -> list[Node]:
    """Returns the nodes that run once, after all parts: updates of parameters, and what only these read."""
    reads: set[str] = set()
    found = []
    for node in reversed(graph.nodes):
        parameter = any(graph.by_name[old].kind == "parameter" for old, _ in node.replaced)
        clips = graph.by_name[node.outputs[0]].kind == "clipping"
        counts = bool(node.replaced) and not reads.isdisjoint(node.outputs)
        if parameter or clips or counts:
            found.append(node)
            reads.update(node.inputs)
    return found[::-1]


def _copied(graph: StepGraph, node: Node, part: int, parts: int, states: dict[str, str]) -> Node:
    """Returns a node for one part. It reads the part's tensors, and states as the previous part left them."""

    def named(name: str) -> str:
        return states.get(name, name) if _shared(graph.by_name[name]) else part_name(name, part)

    operator = node.kernel.operator
    if isinstance(operator, CrossEntropy):
        operator = replace(operator, of=operator.n * parts)
    return Node(
        Kernel(operator, node.kernel.role),
        tuple(named(name) for name in node.inputs),
        tuple(part_name(name, part) for name in node.outputs),
        node.place,
    )


def _adding(graph: StepGraph, size: int, share: float) -> Kernel:
    """Returns the kernel that adds two tensors. In a described step it multiplies the sum by a share."""
    if not graph.described:
        return Kernel(Add(size), "data_grad")  # The loss's own operator divides by the whole batch.
    before, new = (Load(at, (Axis(0),), "float") for at in range(2))
    total = apply("add", before, new)
    if share != 1.0:
        total = apply("mul", total, number(share))
    stage = Stage((size,), (), "map", total)
    described = Described((Operand((size,)), Operand((size,))), (stage,), (0,))
    return Kernel(Expression.of(described), "forward")


def own_part(graph: StepGraph, tensor: Tensor, whole: NDArray[Any]) -> NDArray[Any]:
    """Returns an input's share of an array for the whole batch, in its stored order.

    Args:
        graph: The step.
        tensor: An input or a label of one part.
        whole: The array, [batch, ...].
    """
    samples, part = graph.batch // graph.parts, whole_of(tensor.name)[1]
    return tensor.stored(whole[part * samples : (part + 1) * samples])
