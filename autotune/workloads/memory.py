"""Memory of a step, planned before it runs: the lifetime of each tensor, and its place in one arena."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from autotune.workloads.graph import SOURCE_KINDS, StepGraph

ALIGNMENT = 64  # Bytes: a cache line, and the widest vector.
_LASTING = frozenset(("parameter", "state", "constant"))


@dataclass(frozen=True)
class Span:
    """A block of memory: its size, and the first and last nodes that need it.

    Attributes:
        key: The tensor's name, or ``(node, number)`` for a kernel's scratch.
        bytes: Size, a multiple of the alignment.
        first: Index of the node that writes it; -1 if it is there from the start.
        last: Index of the last node that reads it.
    """

    key: str | tuple[int, int]
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """The place of every tensor and scratch buffer.

    Attributes:
        offsets: First byte of each tensor in the arena.
        scratch: First byte of each scratch buffer, by node and number.
        arena_bytes: Size of the arena: the peak memory of the step.
        bound_bytes: Largest sum of what is needed at one time. No plan for this order of nodes can take less.
    """

    offsets: Mapping[str, int]
    scratch: Mapping[tuple[int, int], int]
    arena_bytes: int
    bound_bytes: int


def plan_memory(
    graph: StepGraph,
    scratch: Mapping[str, tuple[int, ...]] | None = None,
    alignment: int = ALIGNMENT,
) -> MemoryPlan:
    """Places every tensor of a step. Tensors that never live at the same time may share memory.

    Persistent tensors come first. The others are placed largest first, each at the lowest offset that is free
    during its lifetime (greedy by size: Pisarchyk and Lee, MLSys 2020). An updated parameter takes the place of the
    old one if nothing reads that later; otherwise it is copied there at the end of the step.

    Args:
        graph: A valid step.
        scratch: Bytes of a kernel's scratch buffers, by its name.
        alignment: Every offset is a multiple of this number of bytes.

    Returns:
        The plan.
    """
    spans, shared = _spans(graph, scratch or {}, alignment)
    placed: list[tuple[int, Span]] = []
    top = 0
    for span in spans:
        if span.first < 0 and span.last >= len(graph.nodes):
            placed.append((top, span))
            top += span.bytes
    lasting = top
    passing = sorted(
        (span for span in spans if span.first >= 0 or span.last < len(graph.nodes)),
        key=lambda span: (-span.bytes, span.first),
    )
    for span, offset in zip(passing, _lowest_offsets(passing), strict=True):
        placed.append((lasting + offset, span))
        top = max(top, lasting + offset + span.bytes)
    at = {span.key: offset for offset, span in placed}
    offsets = {t.name: at[_owner(shared, t.name)] for t in graph.tensors}
    return MemoryPlan(
        offsets,
        {key: offset for key, offset in at.items() if isinstance(key, tuple)},
        top,
        lasting + max(_sums(passing, len(graph.nodes))),
    )


def live_bytes(graph: StepGraph, scratch: Mapping[str, tuple[int, ...]] | None = None) -> list[int]:
    """Returns the bytes of the tensors and scratch buffers that are needed while each node runs, in order.

    Args:
        graph: A valid step.
        scratch: See `plan_memory`.
    """
    return _sums(_spans(graph, scratch or {}, ALIGNMENT)[0], len(graph.nodes))[1:-1]


def _lowest_offsets(spans: list[Span]) -> list[int]:
    """Returns for each span the lowest offset where it overlaps no earlier span that lives at the same time."""
    first = np.array([span.first for span in spans], np.int64)
    last = np.array([span.last for span in spans], np.int64)
    size = np.array([span.bytes for span in spans], np.int64)
    start = np.zeros(len(spans), np.int64)
    for at in range(len(spans)):
        (others,) = np.nonzero((first[:at] <= last[at]) & (first[at] <= last[:at]))
        others = others[np.argsort(start[others], kind="stable")]
        begins, ends = start[others], np.maximum.accumulate(start[others] + size[others])
        free_from = np.concatenate(([0], ends))
        free_to = np.append(begins, np.iinfo(np.int64).max)
        start[at] = free_from[np.argmax(free_to - free_from >= size[at])]
    return [int(offset) for offset in start]


def replaced_in_place(graph: StepGraph) -> dict[str, str]:
    """Returns, for each updated tensor, the old tensor whose memory it takes: one that no later node reads."""
    last_read = {name: at for at, node in enumerate(graph.nodes) for name in node.inputs}
    return {
        new: old
        for at, node in enumerate(graph.nodes)
        for old, new in node.replaced
        if last_read[old] == at
    }


def _spans(
    graph: StepGraph, scratch: Mapping[str, tuple[int, ...]], alignment: int
) -> tuple[list[Span], dict[str, str]]:
    shared, end = replaced_in_place(graph), len(graph.nodes)
    first = {tensor.name: -1 for tensor in graph.tensors if tensor.kind in SOURCE_KINDS}
    last = dict.fromkeys(first, -1)
    for at, node in enumerate(graph.nodes):
        for name in node.outputs:
            first.setdefault(name, at)
        for name in (*node.inputs, *node.outputs):
            last[name] = at
    for tensor in graph.tensors:
        if tensor.kind in _LASTING or tensor.kind == "updated" or tensor.name == graph.loss:
            last[tensor.name] = end
    spans = [
        Span(tensor.name, _aligned(tensor.bytes, alignment), first[tensor.name], last[tensor.name])
        for tensor in graph.tensors
        if tensor.name not in shared
    ]
    spans += [
        Span((at, number), _aligned(size, alignment), at, at)
        for at, node in enumerate(graph.nodes)
        for number, size in enumerate(scratch.get(node.kernel.name, ()))
    ]
    return spans, shared


def _owner(shared: Mapping[str, str], name: str) -> str:
    """Returns the tensor whose memory a tensor takes, also through several others; itself if it has its own."""
    while name in shared:
        name = shared[name]
    return name


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _sums(spans: list[Span], nodes: int) -> list[int]:
    """Returns the bytes that live before the first node, at each node, and after the last."""
    changes = [0] * (nodes + 3)
    for span in spans:
        changes[span.first + 1] += span.bytes
        changes[span.last + 2] -= span.bytes
    return list(accumulate(changes[: nodes + 2]))
