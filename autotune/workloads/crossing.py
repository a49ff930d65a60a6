"""A step between two places: which of its calls another form of it has too, and which tensors go to and fro."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.workloads.graph import Node, StepGraph, Tensor

GPU_ALIGNMENT = 512
"""Bytes. Parts of an OpenCL buffer begin at multiples of CL_DEVICE_MEM_BASE_ADDR_ALIGN, 4096 bits at most."""


@dataclass(frozen=True)
class Order:
    """A tensor's axes in another order.

    Attributes:
        shape: The tensor's shape where it comes from.
        axes: Of ``shape``, in the other order.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Traffic:
    """A tensor that calls of a step hand to others, whatever step they are of.

    Attributes:
        tensor: Its name.
        producer: The call that writes it; None where it comes from outside afresh for each step.
        readers: The calls that read it; None among them stands for the host.
    """

    tensor: str
    producer: int | None
    readers: tuple[int | None, ...]


def counterparts(graph: StepGraph, other: StepGraph) -> dict[int, Node]:
    """Nodes of another form of a step that read and write the same tensors, by the number of the call.

    Args:
        graph: The step.
        other: The same step in another layout: where a node is fused otherwise, it has no counterpart.
    """
    known = {(node.inputs, node.outputs): node for node in other.nodes}
    return {
        call: known[node.inputs, node.outputs]
        for call, node in enumerate(graph.nodes)
        if (node.inputs, node.outputs) in known
    }


def reordered(tensor: Tensor, other: Tensor) -> Order | None:
    """How another form of a step stores a tensor; None where both do so alike.

    Args:
        tensor: The tensor.
        other: The same tensor in the other form.
    """
    mine, theirs = tensor.layout, other.layout
    known = mine or theirs
    if known is None:
        return None
    plain = tuple(range(len(known.view)))
    own, wanted = mine.order if mine else plain, theirs.order if theirs else plain
    if own == wanted:
        return None
    return Order(tuple(known.view[axis] for axis in own), tuple(own.index(axis) for axis in wanted))


def traffic(graph: StepGraph) -> tuple[Traffic, ...]:
    """The tensors that calls hand to others.

    A parameter and what replaces it are one tensor: the step before has written what this one reads. Constants
    are where they are needed once and for all, and not among them.
    """
    old = _first(graph)
    written: dict[str, int] = {}
    readers: dict[str, list[int | None]] = {}
    for call, node in enumerate(graph.nodes):
        for name in node.outputs:
            written[old.get(name, name)] = call
        for name in node.inputs:
            readers.setdefault(old.get(name, name), []).append(call)
    readers.setdefault(graph.loss, []).append(None)
    constants = {tensor.name for tensor in graph.tensors if tensor.kind == "constant"}
    return tuple(
        Traffic(name, written.get(name), tuple(dict.fromkeys(calls)))
        for name, calls in readers.items()
        if name not in constants
    )


def _first(graph: StepGraph) -> Mapping[str, str]:
    """Updated tensor -> the parameter or state that it comes after, through any number of others."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        for old, new in node.replaced:
            found[new] = found.get(old, old)
    return found
