"""Which calls of a step run on the CPU and which on a GPU, so that calls and crossings together cost least.

Two places, costs of calls, and costs where a tensor crosses make a minimum cut (Stone, "Multiprocessor Scheduling
with the Aid of Network Flow Algorithms", IEEE TSE 1977). A tensor that several calls read crosses once: it has a
node of its own in the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

Floats = NDArray[np.float64]
_SMALLEST = 1e-12
_TOTAL = 2**30
"""Capacities are whole numbers; all costs together come to this."""


@dataclass(frozen=True)
class Crossing:
    """A tensor that may have to go from one place to the other.

    Attributes:
        producer: The call that writes it; None where the host does.
        readers: The calls that read it; None among them stands for the host.
        to_gpu: What it costs to bring it to the GPU.
        to_cpu: What it costs to bring it back.
    """

    producer: int | None
    readers: tuple[int | None, ...]
    to_gpu: float
    to_cpu: float


def cost(on_gpu: Sequence[bool], cpu: Floats, gpu: Floats, crossings: Sequence[Crossing]) -> float:
    """What a placement costs: its calls, and the tensors that cross."""
    total = float(np.where(on_gpu, gpu, cpu).sum())
    for one in crossings:
        made = one.producer is not None and on_gpu[one.producer]
        read = [reader is not None and on_gpu[reader] for reader in one.readers]
        if made and not all(read):
            total += one.to_cpu
        if not made and any(read):
            total += one.to_gpu
    return total


def placed(cpu: Floats, gpu: Floats, crossings: Sequence[Crossing]) -> tuple[bool, ...]:
    """Whether each call is best on the GPU.

    Args:
        cpu: What each call costs on the CPU, shape (calls,).
        gpu: The same on the GPU; infinite where it cannot run there.
        crossings: Tensors that may cross.

    Returns:
        The placement of least cost, to one part in `2**30` of the costs' sum.
    """
    calls = len(cpu)
    host, device = calls + 2 * len(crossings), calls + 2 * len(crossings) + 1
    finite = np.where(np.isfinite(gpu), gpu, 0.0)
    whole = float(cpu.sum() + finite.sum() + sum(one.to_gpu + one.to_cpu for one in crossings))
    scale = _TOTAL / max(whole, _SMALLEST)
    never = _TOTAL + 1
    edges: list[tuple[int, int, int]] = []

    def edge(start: int, end: int, capacity: float) -> None:
        whole_number = round(capacity * scale) if np.isfinite(capacity) else never
        edges.append((start, end, min(never, whole_number)))

    # A call on the host's side of the cut runs on the CPU: the edge to the device is cut, which costs that.
    for call in range(calls):
        edge(call, device, float(cpu[call]))
        edge(host, call, float(gpu[call]))
    for number, one in enumerate(crossings):
        producer = host if one.producer is None else one.producer
        # Each once: capacities of equal edges would add up.
        readers = {host if reader is None else reader for reader in one.readers}
        there, back = calls + 2 * number, calls + 2 * number + 1
        edge(producer, there, one.to_gpu)
        edge(back, producer, one.to_cpu)
        for reader in readers:
            edges.append((there, reader, never))
            edges.append((reader, back, never))
    rows, columns, capacities = (
        np.asarray(column, np.int32) for column in zip(*edges, strict=True)
    )
    network = coo_array((capacities, (rows, columns)), shape=(device + 1, device + 1)).tocsr()
    flow = maximum_flow(network, host, device).flow
    left = network - flow
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, host, return_predecessors=False).tolist())
    return tuple(call not in reached for call in range(calls))
