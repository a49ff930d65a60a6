"""Splits a step whose first layers are frozen: what is the same for a sample each time, and the rest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from autotune.workloads.graph import Kind, Node, StepGraph, Tensor


@dataclass(frozen=True)
class Split:
    """The two parts of a step.

    Attributes:
        features: Forward of the frozen layers: computes the features of a batch. It has no loss; its ``loss`` is
            the first of ``names``.
        training: The rest of the step, with the features as inputs.
        names: The tensors that pass from one to the other.
        data: The inputs that the features are computed of.
    """

    features: StepGraph
    training: StepGraph
    names: tuple[str, ...]
    data: tuple[str, ...]


def split_at_features(graph: StepGraph) -> Split | None:
    """Splits a step after the nodes that depend on its data and on constants alone.

    Nothing here tells whether a feature belongs to one sample. It does not where batch norm uses the statistics of
    the batch.

    Args:
        graph: A valid step in its final form.

    Returns:
        The parts; None where no node depends on data and constants alone.
    """
    data = {tensor.name for tensor in graph.data if tensor.kind == "input"}
    fixed = {tensor.name for tensor in graph.tensors if tensor.kind == "constant"}
    early: list[Node] = []
    of_data = set(data)
    for node in graph.nodes:
        if node.kernel.replaces or not set(node.inputs) <= of_data | fixed:
            continue
        early.append(node)
        (of_data if of_data.intersection(node.inputs) else fixed).update(node.outputs)
    again = [node for node in early if fixed.issuperset(node.outputs)]
    taken = [node for node in early if node not in again]
    later = [node for node in graph.nodes if node not in taken]
    made = {name for node in taken for name in node.outputs}
    read = {name for node in later for name in node.inputs}
    names = tuple(tensor.name for tensor in graph.tensors if tensor.name in made & read)
    if not names:
        return None
    features = _of(graph, _needed(early, names), dict.fromkeys(names, "updated"), names[0])
    training = _of(graph, _needed(later, {graph.loss}), dict.fromkeys(names, "input"), graph.loss)
    used = {name for node in features.nodes for name in node.inputs}
    return Split(features, training, names, tuple(t.name for t in graph.data if t.name in used))


def _needed(nodes: list[Node], wanted: Collection[str]) -> tuple[Node, ...]:
    """The nodes that some tensors depend on, and updates with what they depend on."""
    needed = set(wanted)
    kept = []
    for node in reversed(nodes):
        if node.kernel.replaces or needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))


def _of(graph: StepGraph, nodes: tuple[Node, ...], kinds: dict[str, Kind], loss: str) -> StepGraph:
    """A part of a step, in which some tensors are of another kind."""
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)}

    def changed(tensor: Tensor) -> Tensor:
        return replace(tensor, kind=kinds[tensor.name]) if tensor.name in kinds else tensor

    tensors = tuple(changed(tensor) for tensor in graph.tensors if tensor.name in used)
    return replace(graph, tensors=tensors, nodes=nodes, loss=loss)
