"""Joins kernels so that what one writes is not read back by the next: epilogues over a whole step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.workloads.graph import Node, StepGraph
from autotune.workloads.operators import Add, Kernel


def fused(graph: StepGraph) -> StepGraph:
    """Makes element-wise kernels the epilogue of the kernel whose result they alone read.

    Bias and activation join a convolution, the mask of a ReLU's gradient joins the data gradient before it, and
    an update joins the gradient of its parameter, which is then never stored. A gradient with its update runs after
    the last kernel that reads the old value, so that the new one can take its place.

    Args:
        graph: A valid step without epilogues.

    Returns:
        A valid step that computes the same; tensors that are no longer written are gone.
    """
    nodes = _counters_first(graph)
    for node in graph.nodes:
        if node.kernel.streamed is not None:
            nodes = _joined(nodes, node, graph.loss)
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)}
    tensors = tuple(tensor for tensor in graph.tensors if tensor.name in used)
    result = replace(graph, tensors=tensors, nodes=tuple(nodes))
    result.validate()
    return result


def _counters_first(graph: StepGraph) -> list[Node]:
    """The nodes, first those that depend on nothing of the step, such as Adam's counters: updates wait for them."""
    made = {name for node in graph.nodes for name in node.outputs}
    early = [node for node in graph.nodes if made.isdisjoint(node.inputs) and node.kernel.replaces]
    return [*early, *(node for node in graph.nodes if node not in early)]


def _joined(nodes: list[Node], follower: Node, loss: str) -> list[Node]:
    """The nodes with one element-wise node as the epilogue of its producer, or as they were."""
    makers = {name: at for at, node in enumerate(nodes) for name in node.outputs}
    for position in _streams(follower):
        name = follower.inputs[position]
        readers = [node for node in nodes if name in node.inputs]
        if name not in makers or readers != [follower] or name == loss:
            continue
        made = makers[name]
        producer = nodes[made]
        if len(producer.outputs) != 1 or producer.kernel.replaces:
            continue
        added = tuple(n for at, n in enumerate(follower.inputs) if at != position)
        after = _turn(nodes, follower, made, [makers.get(n, -1) for n in added])
        if after is None:
            continue
        kernel = producer.kernel
        joined = Node(
            Kernel(kernel.operator, kernel.role, (*kernel.epilogue, follower.kernel)),
            (*producer.inputs, *added),
            follower.outputs,
            producer.place,
        )
        gone = (producer, follower)
        early = [node for node in nodes[: after + 1] if node not in gone]
        return [*early, joined, *(node for node in nodes[after + 1 :] if node not in gone)]
    return nodes


def _streams(node: Node) -> Sequence[int]:
    """The inputs that may stream: either one of a sum."""
    if isinstance(node.kernel.operator, Add):
        return (0, 1) if node.inputs[0] != node.inputs[1] else ()
    return () if node.kernel.streamed is None else (node.kernel.streamed,)


def _turn(nodes: list[Node], follower: Node, made: int, ready: list[int]) -> int | None:
    """The place in the order that the joined node follows; None where it would have to wait.

    An update waits for the last other reader of what it replaces; nothing else waits, since waiting would keep the
    producer's operands in memory.
    """
    waits = max([made, *ready])
    if not follower.kernel.replaces:
        return made if waits == made else None
    old = {name for name, _ in follower.replaced}
    readers = [at for at, n in enumerate(nodes) if n is not follower and old & set(n.inputs)]
    return max([waits, *readers])
