"""What a joint search knows of a GPU: what calls take there, what bringing tensors to and fro costs, its power."""

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
    """Tensors of one size and order, and what it costs to bring one from one place to the other.

    Attributes:
        bytes: Of each.
        order: How the GPU stores it; None where both places store it alike.
        tensors: How many there are.
        costs: By the kind of memory.
    """

    bytes: int
    order: Order | None
    tensors: int
    costs: Mapping[MemoryKind, CrossingSeconds]


@dataclass(frozen=True)
class GpuKernel:
    """A kernel of a run for a GPU.

    Attributes:
        name: The kernel's.
        digest: Its schedule's identity.
        formulation: Its formulation.
        seconds: What it took when it was tuned.
    """

    name: str
    digest: str
    formulation: str
    seconds: float


@dataclass(frozen=True)
class GpuForm:
    """What a GPU can do of a form of a step.

    Attributes:
        calls: How many calls the step has.
        kernels: The GPU's kernel by call.
        crossings: Tensors that may cross, in seconds, with the memory that is taken.
        crossed: The same by size and order, with both kinds of memory.
        memory: The memory that costs less.
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
    """What a GPU can do of a form of a step.

    Args:
        graph: The step.
        kernels: The GPU's kernel by call.
        orders: How the GPU stores tensors, by name, where that differs.
        measured: What a tensor's crossing costs, by its number in the graph: of each size and order one.
        memory: How tensors cross; None for what costs less.
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
    """Where calls are best, by what is known.

    Args:
        forms: What the GPU can do of each form of the step.
        of_call: The task of each call of each form, by its index in the pools; None where no run knows its kernel.
        device: The GPU.

    Attributes:
        only: Where every call that can be is made, once that is settled; None for where it is best.
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
        """What each call takes on the GPU, shape (calls,); infinite where it cannot make it.

        What was measured in steps counts; what was not is as much slower there than it was alone as the rest is.
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
        """Seconds that a call of a form took on the GPU in steps, a number a measurement."""
        return tuple(self._seen.get((form, call), ()))

    def chosen(
        self, form: int, of_task: Floats, second: float, joule: float, cpu_watts: float
    ) -> tuple[tuple[int, ...], float]:
        """The calls that are best made by the GPU, and what the step costs then.

        Args:
            form: The step's form.
            of_task: What a call of each task costs on the CPU, shape (tasks,).
            second: What a second costs.
            joule: What a joule costs.
            cpu_watts: What the CPU draws; the GPU is thought to draw as much until it was measured.
        """
        own = self.forms[form]
        cpu = np.asarray([0.0 if t is None else of_task[t] for t in self.of_call[form]])
        gpu = self.seconds(form)
        # What no run knows on the CPU cannot be compared.
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
        """Seconds that calls on the GPU take, and the crossings that come with them."""
        own, there = self.forms[form], set(calls)
        where = [call in there for call in range(own.calls)]
        nothing = np.zeros(own.calls)
        return cost(where, nothing, np.where(where, self.seconds(form), 0.0), own.crossings)

    def counts(self, form: int, calls: Sequence[int], tasks: int) -> Floats:
        """How often the calls run each task, shape (tasks,)."""
        found = np.zeros(tasks)
        for call in calls:
            task = self.of_call[form][call]
            if task is not None:
                found[task] += 1
        return found

    @property
    def watts(self) -> float | None:
        """What the step draws while the GPU works; None before that was measured."""
        return median(self._watts) if self._watts else None

    def learn(
        self, form: int, gpu_s: Sequence[Sequence[Any]], energy_j: float | None, cpu_j: float | None
    ) -> None:
        """Takes in what a step told.

        Args:
            form: Its form.
            gpu_s: Calls that the GPU made, and their seconds.
            energy_j: What the step drew.
            cpu_j: What its calls on the CPU should have drawn; None where nothing tells.
        """
        for call, seconds in gpu_s:
            self._seen.setdefault((form, int(call)), []).append(float(seconds))
        if energy_j is None or cpu_j is None or not gpu_s:
            return
        away = self.away(form, [int(call) for call, _ in gpu_s])
        if away > 0 and energy_j > cpu_j:
            self._watts.append((energy_j - cpu_j) / away)
