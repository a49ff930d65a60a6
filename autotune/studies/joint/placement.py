"""Places each call of a step on the CPU or a GPU so that calls and crossings together cost least.

Two places, costs of calls and costs of crossing tensors form a minimum cut problem (Stone, "Multiprocessor
Scheduling with the Aid of Network Flow Algorithms", IEEE TSE 1977). A tensor that several calls read crosses only
once, so it has its own node in the network.
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
"""The sum of all costs, scaled to whole numbers, because capacities are whole numbers."""


@dataclass(frozen=True)
class Crossing:
    """A tensor that may have to move from one place to the other.

    Attributes:
        producer: The call that writes it; None if the host does.
        readers: The calls that read it; None among them stands for the host.
        to_gpu: Cost of moving it to the GPU.
        to_cpu: Cost of moving it back.
    """

    producer: int | None
    readers: tuple[int | None, ...]
    to_gpu: float
    to_cpu: float


def cost(on_gpu: Sequence[bool], cpu: Floats, gpu: Floats, crossings: Sequence[Crossing]) -> float:
    """Returns the cost of a placement: its calls, and the tensors that cross."""
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
    """Returns whether each call is best made on the GPU.

    Args:
        cpu: Cost of each call on the CPU, shape (calls,).
        gpu: Cost of each call on the GPU; infinite if it cannot run there.
        crossings: Tensors that may cross.

    Returns:
        The placement of least cost, accurate to one part in `2**30` of the sum of costs.
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

    # A call on the host's side of the cut runs on the CPU. The cut goes through its edge to the device, so that
    # edge carries the CPU's cost.
    for call in range(calls):
        edge(call, device, float(cpu[call]))
        edge(host, call, float(gpu[call]))
    for number, one in enumerate(crossings):
        producer = host if one.producer is None else one.producer
        # Each reader once, because capacities of equal edges would add up.
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
