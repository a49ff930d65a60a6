"""A step that takes its batch in parts (micro-batches) and accumulates the gradients, to need less memory."""

from __future__ import annotations

from dataclasses import replace

from autotune.workloads.graph import SOURCE_KINDS, Node, StepGraph, Tensor
from autotune.workloads.operators import Add, CrossEntropy, Kernel, RunningStats

_GIVEN_AFRESH = ("input", "label")


def part_name(name: str, part: int) -> str:
    """Returns the name that a tensor of the plain step has in a part of the batch; parts count from 0."""
    return name if part == 0 else f"{name}#{part + 1}"


def whole_of(name: str) -> tuple[str, int]:
    """Returns the plain step's name of a part's tensor, and the number of the part: the inverse of `part_name`."""
    base, mark, number = name.rpartition("#")
    return (base, int(number) - 1) if mark and number.isdecimal() else (name, 0)


def accumulated(graph: StepGraph, parts: int) -> StepGraph:
    """Repeats forward and backward pass for each part of the batch, then updates once, by the summed gradients.

    The loss is the mean over the whole batch. Batch normalisation sees one part at a time: each part is normalised
    by its own statistics, and the running statistics are updated by each part in turn.

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
    optimiser = [node for node in graph.nodes if _is_optimiser(graph, node)]
    updating = {id(node) for node in optimiser}
    updated = {name for node in optimiser for name in node.outputs}
    computed = {t.name for t in graph.tensors if t.kind == "gradient"}
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
                if name in gradients or name == graph.loss:
                    sums[name] = _added(sums.get(name), written, tensors, nodes, copy.place)
        states |= {
            old: part_name(new, part)
            for node in graph.nodes
            if isinstance(node.kernel.operator, RunningStats)
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


def _is_optimiser(graph: StepGraph, node: Node) -> bool:
    """Returns whether a node runs once, after all parts of the batch."""
    if graph.by_name[node.outputs[0]].kind == "clipping":
        return True
    return node.kernel.role == "update" and not isinstance(node.kernel.operator, RunningStats)


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


def _added(
    before: str | None, name: str, tensors: dict[str, Tensor], nodes: list[Node], place: str
) -> str:
    """Adds a tensor to the sum so far; returns the sum's name."""
    if before is None:
        return name
    total = f"{name}.sum"
    tensors[total] = replace(tensors[name], name=total)
    nodes.append(
        Node(Kernel(Add(tensors[name].elements), "data_grad"), (before, name), (total,), place)
    )
    return total
