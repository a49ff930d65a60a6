"""A step shared by two devices: the calls that another form of it also has, and the tensors that are exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.workloads.graph import Node, StepGraph, Tensor

GPU_ALIGNMENT = 512
"""Bytes. Parts of an OpenCL buffer begin at multiples of CL_DEVICE_MEM_BASE_ADDR_ALIGN (at most 4096 bits)."""


@dataclass(frozen=True)
class Order:
    """A tensor's axes in another order.

    Attributes:
        shape: The tensor's shape at its source.
        axes: Axes of ``shape``, in the other order.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Traffic:
    """A tensor that calls pass to other calls, in the same step or the next.

    Attributes:
        tensor: Its name.
        producer: The call that writes it; None if it is given from outside for each step.
        readers: The calls that read it; None stands for the host.
    """

    tensor: str
    producer: int | None
    readers: tuple[int | None, ...]


def counterparts(graph: StepGraph, other: StepGraph) -> dict[int, Node]:
    """Returns nodes of another form of a step that read and write the same tensors, by the number of the call.

    Args:
        graph: The step.
        other: The same step in another layout. A node that is fused differently has no counterpart.
    """
    known = {(node.inputs, node.outputs): node for node in other.nodes}
    return {
        call: known[node.inputs, node.outputs]
        for call, node in enumerate(graph.nodes)
        if (node.inputs, node.outputs) in known
    }


def reordered(tensor: Tensor, other: Tensor) -> Order | None:
    """Returns how another form of a step stores a tensor; None if both store it alike.

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
    """Returns the tensors that calls pass to other calls.

    A parameter and its updated value are one tensor: a step reads what the previous step has written. Constants are
    not included, since they are stored once on each device.
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
    """Returns, for each updated tensor, the parameter or state that it replaces, also through several updates."""
    found: dict[str, str] = {}
    for node in graph.nodes:
        for old, new in node.replaced:
            found[new] = found.get(old, old)
    return found
