"""A step that forgets activations and computes them again, to need less memory (activation checkpointing)."""

from __future__ import annotations

from dataclasses import replace

from autotune.workloads.graph import Node, StepGraph, Tensor

_SMALL_BYTES = 16384


def again(name: str) -> str:
    """The name of a tensor that is computed a second time."""
    return f"{name}!"


def recomputed(graph: StepGraph, segments: int) -> StepGraph:
    """Cuts the forward pass into segments, and keeps only what passes from one to a later one.

    When the backward pass first needs another activation of a segment, the segment's kernels that lead to such
    activations run again (Chen et al., 2016). Small tensors, such as a batch's statistics, are kept. Statistics that
    run are updated once.

    Args:
        graph: A valid step without epilogues.
        segments: Segments of about equal sizes of activations, at least 1.

    Returns:
        A valid step that computes the same.
    """
    forward = [node for node in graph.nodes if node.kernel.role == "forward"]
    segment_of = _segments(graph, forward, segments)
    maker = {name: node for node in forward for name in node.outputs}
    kept = _kept(graph, forward, segment_of)
    wanted = _wanted(graph, kept, maker)
    copies: dict[str, Tensor] = {}
    nodes: list[Node] = []
    done: set[int] = set()
    for node in graph.nodes:
        if node.kernel.role in ("data_grad", "weight_grad"):
            for name in node.inputs:
                if name in wanted and segment_of[id(maker[name])] not in done:
                    segment = segment_of[id(maker[name])]
                    done.add(segment)
                    nodes += _rerun(graph, forward, segment_of, segment, wanted, kept, copies)
            node = replace(
                node, inputs=tuple(again(n) if n in copies else n for n in node.inputs)
            )
        nodes.append(node)
    result = replace(graph, tensors=(*graph.tensors, *copies.values()), nodes=tuple(nodes))
    result.validate()
    return result


def _segments(graph: StepGraph, forward: list[Node], count: int) -> dict[int, int]:
    """Segment of each forward node, by its identity, so that each writes about as many bytes."""
    sizes = [sum(graph.by_name[name].bytes for name in node.outputs) for node in forward]
    total, before = sum(sizes), 0
    segment_of = {}
    for node, size in zip(forward, sizes, strict=True):
        segment_of[id(node)] = min(count - 1, before * count // max(1, total))
        before += size
    return segment_of


def _kept(graph: StepGraph, forward: list[Node], segment_of: dict[int, int]) -> set[str]:
    """Activations that are never computed again: small ones, and those that a later segment reads."""
    made = {name: segment_of[id(node)] for node in forward for name in node.outputs}
    kept = {name for name in made if graph.by_name[name].bytes <= _SMALL_BYTES}
    for node in forward:
        kept |= {n for n in node.inputs if n in made and made[n] != segment_of[id(node)]}
    return kept


def _wanted(graph: StepGraph, kept: set[str], maker: dict[str, Node]) -> set[str]:
    """Activations that the backward pass reads and that are not kept."""
    return {
        name
        for node in graph.nodes
        if node.kernel.role in ("data_grad", "weight_grad")
        for name in node.inputs
        if name in maker and name not in kept
    }


def _rerun(
    graph: StepGraph,
    forward: list[Node],
    segment_of: dict[int, int],
    segment: int,
    wanted: set[str],
    kept: set[str],
    copies: dict[str, Tensor],
) -> list[Node]:
    """The kernels of a segment that lead to what is wanted of it, once more."""
    needed, chosen = set(wanted), []
    for node in reversed([n for n in forward if segment_of[id(n)] == segment]):
        if needed.intersection(node.outputs):
            needed.update(name for name in node.inputs if name not in kept)
            chosen.append(node)
    nodes = []
    for node in reversed(chosen):
        for name in node.outputs:
            copies[again(name)] = replace(graph.by_name[name], name=again(name))
        inputs = tuple(again(n) if again(n) in copies else n for n in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=tuple(map(again, node.outputs))))
    return nodes
