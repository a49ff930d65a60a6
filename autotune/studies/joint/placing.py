"""What a joint search knows about a GPU: times of calls, costs of moving tensors, power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autotune.measurement import CrossingSeconds, MemoryKind, OpenClDevice
from autotune.studies.joint.placement import Crossing, cost, placed
from autotune.workloads import Order, StepGraph, Traffic, traffic

Floats = NDArray[np.float64]
_LEAST_S = 1e-9


@dataclass(frozen=True)
class Crossed:
    """Tensors of one size and order, and the cost of moving one between the places.

    Attributes:
        bytes: Size of each tensor.
        order: The order in which the GPU stores it; None if both places use the same.
        tensors: Number of such tensors.
        costs: Costs by kind of memory.
    """

    bytes: int
    order: Order | None
    tensors: int
    costs: Mapping[MemoryKind, CrossingSeconds]


@dataclass(frozen=True)
class GpuKernel:
    """A kernel of a run for a GPU.

    Attributes:
        name: The kernel's name.
        digest: Its schedule's identity.
        formulation: Its formulation.
        seconds: Its time in tuning.
    """

    name: str
    digest: str
    formulation: str
    seconds: float


@dataclass(frozen=True)
class GpuForm:
    """The GPU's possible part of a form of a step.

    Attributes:
        calls: Number of calls of the step.
        kernels: The GPU's kernel by call.
        crossings: Tensors that may cross, with costs in seconds for the chosen memory.
        crossed: The same tensors by size and order, with costs for both kinds of memory.
        memory: The kind of memory with lower costs.
    """

    calls: int
    kernels: Mapping[int, GpuKernel]
    crossings: tuple[Crossing, ...]
    crossed: tuple[Crossed, ...]
    memory: MemoryKind

    @property
    def all(self) -> tuple[int, ...]:
        """Every call that the GPU can make."""
        return tuple(sorted(self.kernels))


def gpu_form(
    graph: StepGraph,
    kernels: Mapping[int, GpuKernel],
    orders: Mapping[str, Order],
    measured: Mapping[MemoryKind, Mapping[int, CrossingSeconds]],
    memory: MemoryKind | None = None,
) -> GpuForm:
    """Returns the GPU's possible part of a form of a step.

    Args:
        graph: The step.
        kernels: The GPU's kernel by call.
        orders: The GPU's storage order of tensors, by name, if it differs.
        measured: Crossing cost by the tensor's number in the graph, for one tensor of each size and order.
        memory: How tensors cross; None for the cheaper way.
    """
    kinds: dict[tuple[int, Order | None], dict[MemoryKind, CrossingSeconds]] = {}
    for way, costs in measured.items():
        for number, found in costs.items():
            tensor = graph.tensors[number]
            kinds.setdefault((tensor.bytes, orders.get(tensor.name)), {})[way] = found

    def kind(one: Traffic) -> tuple[int, Order | None]:
        return graph.by_name[one.tensor].bytes, orders.get(one.tensor)

    able = set(kernels)
    tensors = [
        one
        for one in traffic(graph)
        if one.producer in able or any(reader in able for reader in one.readers)
    ]
    totals = {
        way: sum(sum(vars(kinds[kind(one)][way]).values()) for one in tensors) for way in measured
    }
    cheapest = min(totals, key=lambda way: totals[way])
    chosen = cheapest if memory is None else memory
    count: dict[tuple[int, Order | None], int] = {}
    crossings = []
    for one in tensors:
        count[kind(one)] = count.get(kind(one), 0) + 1
        found = kinds[kind(one)][chosen]
        crossings.append(
            Crossing(
                one.producer,
                one.readers,
                found.to_gpu + found.reorder_to_gpu,
                found.to_host + found.reorder_to_host,
            )
        )
    crossed = tuple(Crossed(*key, number, kinds[key]) for key, number in count.items())
    return GpuForm(len(graph.nodes), kernels, tuple(crossings), crossed, chosen)


class Placing:
    """Places calls according to the costs known so far.

    Args:
        forms: The GPU's possible part of each form of the step.
        of_call: The task of each call of each form, by its index in the pools; None if no run knows its kernel.
        device: The GPU.

    Attributes:
        only: The place that every possible call has, once that is settled; None to choose the best place.
    """

    def __init__(
        self,
        forms: Sequence[GpuForm],
        of_call: Sequence[Sequence[int | None]],
        device: OpenClDevice,
    ) -> None:
        self.forms, self.of_call, self.device = forms, of_call, device
        self.only: Literal["cpu", "gpu"] | None = None
        self._seen: dict[tuple[int, int], list[float]] = {}
        self._watts: list[float] = []

    def seconds(self, form: int) -> Floats:
        """Returns the time of each call on the GPU, shape (calls,); infinite if the GPU cannot make the call.

        Times measured in steps are used. For other calls, the time measured alone is scaled by the usual slowdown
        in steps.
        """
        known = {call: kernel.seconds for call, kernel in self.forms[form].kernels.items()}
        ratios = [
            median(s) / max(known[c], _LEAST_S) for (f, c), s in self._seen.items() if f == form
        ]
        slower = median(ratios) if ratios else 1.0
        found = np.full(self.forms[form].calls, np.inf)
        for call, alone in known.items():
            own = self._seen.get((form, call))
            found[call] = median(own) if own else alone * slower
        return found

    def timed(self, form: int, call: int) -> Sequence[float]:
        """Returns seconds that a call of a form took on the GPU in steps, one number a measurement."""
        return tuple(self._seen.get((form, call), ()))

    def chosen(
        self, form: int, of_task: Floats, second: float, joule: float, cpu_watts: float
    ) -> tuple[tuple[int, ...], float]:
        """Returns the calls that the GPU should make, and the step's cost with them.

        Args:
            form: The step's form.
            of_task: Cost of a call of each task on the CPU, shape (tasks,).
            second: Cost of a second.
            joule: Cost of a joule.
            cpu_watts: Power of the CPU. The GPU is assumed to draw the same until it is measured.
        """
        own = self.forms[form]
        cpu = np.asarray([0.0 if t is None else of_task[t] for t in self.of_call[form]])
        gpu = self.seconds(form)
        # Calls with no known CPU kernel cannot be compared.
        gpu[[task is None for task in self.of_call[form]]] = np.inf
        rate = second + joule * (self.watts or cpu_watts)
        crossings = [
            Crossing(one.producer, one.readers, one.to_gpu * rate, one.to_cpu * rate)
            for one in own.crossings
        ]
        if self.only is None:
            where = placed(cpu, gpu * rate, crossings)
        else:
            where = tuple(self.only == "gpu" and call in own.kernels for call in range(own.calls))
        calls = tuple(call for call, there in enumerate(where) if there)
        return calls, cost(where, cpu, gpu * rate, crossings)

    def away(self, form: int, calls: Sequence[int]) -> float:
        """Returns seconds of calls on the GPU, including their crossings."""
        own, there = self.forms[form], set(calls)
        where = [call in there for call in range(own.calls)]
        nothing = np.zeros(own.calls)
        return cost(where, nothing, np.where(where, self.seconds(form), 0.0), own.crossings)

    def counts(self, form: int, calls: Sequence[int], tasks: int) -> Floats:
        """Returns how often the calls run each task, shape (tasks,)."""
        found = np.zeros(tasks)
        for call in calls:
            task = self.of_call[form][call]
            if task is not None:
                found[task] += 1
        return found

    @property
    def watts(self) -> float | None:
        """Power of the step while the GPU works; None before it is measured."""
        return median(self._watts) if self._watts else None

    def learn(
        self, form: int, gpu_s: Sequence[Sequence[Any]], energy_j: float | None, cpu_j: float | None
    ) -> None:
        """Learns from a measured step.

        Args:
            form: Its form.
            gpu_s: Calls that the GPU made, and their seconds.
            energy_j: Energy of the step.
            cpu_j: Predicted energy of its calls on the CPU; None if unknown.
        """
        for call, seconds in gpu_s:
            self._seen.setdefault((form, int(call)), []).append(float(seconds))
        if energy_j is None or cpu_j is None or not gpu_s:
            return
        away = self.away(form, [int(call) for call, _ in gpu_s])
        if away > 0 and energy_j > cpu_j:
            self._watts.append((energy_j - cpu_j) / away)
