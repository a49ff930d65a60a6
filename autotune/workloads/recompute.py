"""A step that drops activations and computes them again, to need less memory (activation checkpointing)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.graph import Node, StepGraph, Tensor, whole_of
from autotune.workloads.operators import Expression

_SMALL_BYTES = 16384
_BOUNDS = 32


def again(name: str) -> str:
    """Returns the name of a tensor that is computed a second time."""
    return f"{name}!"


def output_again(node: Node) -> bool:
    """Returns whether a node computes something a second time."""
    return any(whole_of(name)[0].endswith("!") for name in node.outputs)


def recomputed(graph: StepGraph, segments: int) -> StepGraph:
    """Splits the forward pass into segments, and keeps only activations that a later segment reads.

    When the backward pass first needs another activation of a segment, the segment's kernels that lead to such
    activations run again (Chen et al., 2016). The last segment's activations are all kept, since the backward pass
    begins there. Small tensors, such as batch statistics, are kept too. Running statistics are updated only once.

    Args:
        graph: A valid step without epilogues.
        segments: Most segments, at least 1. The cuts are where the least must be kept.

    Returns:
        A valid step that computes the same.
    """
    forward = _forward(graph)
    segment_of = _segments(graph, forward, segments)
    maker = {name: node for node in forward for name in node.outputs}
    kept = _kept(graph, forward, segment_of)
    backward = [
        node for node in graph.nodes if id(node) not in segment_of and node.kernel.role != "update"
    ]
    wanted = {
        name for node in backward for name in node.inputs if name in maker and name not in kept
    }
    reading = {id(node) for node in backward}
    copies: dict[str, Tensor] = {}
    nodes: list[Node] = []
    done: set[int] = set()
    for node in graph.nodes:
        if id(node) in reading:
            for name in node.inputs:
                if name in wanted and segment_of[id(maker[name])] not in done:
                    segment = segment_of[id(maker[name])]
                    done.add(segment)
                    nodes += _rerun(graph, forward, segment_of, segment, wanted, kept, copies)
            node = replace(
                node, inputs=tuple(again(n) if again(n) in copies else n for n in node.inputs)
            )
        nodes.append(node)
    result = replace(graph, tensors=(*graph.tensors, *copies.values()), nodes=tuple(nodes))
    result.validate()
    return result


@dataclass(frozen=True)
class _Cut:
    """A place between two forward nodes.

    Attributes:
        at: Index of the node after it.
        kept: Bytes of activations that cross it.
        before: Bytes of all activations written before it.
    """

    at: int
    kept: int
    before: int


def _forward(graph: StepGraph) -> list[Node]:
    """Returns the nodes that the loss depends on, in order."""
    needed, found = {graph.loss}, []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]


def _segments(graph: StepGraph, forward: list[Node], count: int) -> dict[int, int]:
    """Returns the segment of each forward node, by the node's identity."""
    cuts = _best_cuts(_cuts(graph, forward), count)
    return {id(node): sum(cut <= at for cut in cuts) for at, node in enumerate(forward)}


def _cuts(graph: StepGraph, forward: list[Node]) -> list[_Cut]:
    """Returns where the pass may be cut: never between a kernel and its epilogue. The last cut is its end."""
    last_read = {name: at for at, node in enumerate(forward) for name in node.inputs}
    streams = _streamed(graph)
    passing: dict[str, int] = {}
    cuts, before = [], 0
    for at, node in enumerate(forward):
        live = [name for name in passing if last_read.get(name, -1) >= at]
        if at and not streams.intersection(live):
            cuts.append(_Cut(at, sum(passing[name] for name in live), before))
        for name in node.outputs:
            passing[name] = graph.by_name[name].bytes
            before += 0 if name in streams else passing[name]
    return [*cuts, _Cut(len(forward), 0, before)]


def _streamed(graph: StepGraph) -> set[str]:
    """Returns tensors that fusion will remove: read once, by a kernel that can be an epilogue."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    return {
        name for name, nodes in readers.items() if len(nodes) == 1 and name in _may_stream(nodes[0])
    }


def _may_stream(node: Node) -> set[str]:
    """Returns the operands that an element-wise node may take straight from the kernel that makes them."""
    operator = node.kernel.operator
    if isinstance(operator, Expression) and node.kernel.role == "forward":
        return {node.inputs[at] for at in operator.kernel.streams()}
    at = node.kernel.streamed
    return set() if at is None else {node.inputs[at]}


def _best_cuts(cuts: list[_Cut], count: int) -> list[int]:
    """Returns cuts into at most ``count`` segments that minimise the kept bytes plus the largest segment.

    For each bound on a segment's size, dynamic programming finds the cuts that keep least.
    """
    total = cuts[-1].before
    best: tuple[int, list[int]] = (total, [])
    for share in range(1, _BOUNDS + 1):
        bound = total * share // _BOUNDS
        found = _least_kept(cuts, count, bound)
        if found is not None and found[0] + bound < best[0]:
            best = (found[0] + bound, found[1])
    return best[1]


def _least_kept(cuts: list[_Cut], count: int, bound: int) -> tuple[int, list[int]] | None:
    """Returns the cuts that keep least, with no segment over ``bound`` bytes; None if there are none.

    Each round computes the least kept bytes of a pass with one more segment, ending at each cut.
    """
    before = np.array([0, *(cut.before for cut in cuts)])
    kept = np.array([0, *(cut.kept for cut in cuts)])
    place = np.arange(len(before))
    fits = (place[:, None] < place) & (before - before[:, None] <= bound)
    cost = np.where(place == 0, 0.0, np.inf)
    origins: list[NDArray[np.intp]] = []
    least, rounds = np.inf, 0
    while len(origins) < min(count, len(cuts)):
        through = np.where(fits, cost[:, None], np.inf)
        origins.append(through.argmin(0))
        cost = through.min(0) + kept
        if cost[-1] < least:
            least, rounds = cost[-1], len(origins)
    if not rounds:
        return None
    path, at = [], len(cuts)
    for origin in reversed(origins[1:rounds]):
        at = int(origin[at])
        path.append(cuts[at - 1].at)
    return int(least), path[::-1]


def _kept(graph: StepGraph, forward: list[Node], segment_of: dict[int, int]) -> set[str]:
    """Returns the activations that are never computed again: small ones, and those that a later segment reads."""
    made = {name: segment_of[id(node)] for node in forward for name in node.outputs}
    last = max(segment_of.values())
    kept = {
        name
        for name, segment in made.items()
        if segment == last or graph.by_name[name].bytes <= _SMALL_BYTES
    }
    for node in forward:
        kept |= {n for n in node.inputs if n in made and made[n] != segment_of[id(node)]}
    return kept


def _rerun(
    graph: StepGraph,
    forward: list[Node],
    segment_of: dict[int, int],
    segment: int,
    wanted: set[str],
    kept: set[str],
    copies: dict[str, Tensor],
) -> list[Node]:
    """Returns the kernels of a segment that lead to its wanted activations, to run once more."""
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
