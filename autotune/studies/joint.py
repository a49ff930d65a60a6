"""A joint search: a study proposes the configuration, and each kernel's schedule is chosen for it from its pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from autotune.devices.topology import Cluster
from autotune.studies.bench import Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.kernel_model import Floats, KernelModel, Rows, Seen
from autotune.studies.objective import Objective
from autotune.studies.pareto import front
from autotune.studies.pools import TaskPool

_FEW = 4
_SMALLEST = 1e-9
_ALIKE = 0.02
"""Schedules that are foretold within this of the best are tried in turns: it costs little, and teaches."""
_OFTEN, _SELDOM = 4, 0.1
"""The models are fitted anew after each of so many steps, and later when there is so much more to learn from."""


class StepSource(Protocol):
    """Measures whole steps with chosen schedules."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The device's clusters, from slow to fast."""

    @property
    def device(self) -> dict[str, Any]:
        """See `Bench.device`."""

    def measure(self, configuration: CpuConfiguration | None, chosen: Rows) -> Measured:
        """Measures a step; its `raw` has `task_s`, the seconds of a call of each task, where they are known.

        Args:
            configuration: None for what the system does by itself.
            chosen: Index of each task's schedule in its pool.

        Raises:
            DeviceError: The device is gone; nothing is known of the step.
        """


class JointBench:
    """A study's bench that chooses the schedules of what it measures, and learns from it.

    Args:
        steps: Measures steps.
        tasks: The pools.
        objective: What is to be small.
        seed: Of every draw.
    """

    def __init__(
        self, steps: StepSource, tasks: Sequence[TaskPool], objective: Objective, seed: int
    ) -> None:
        self._steps, self._objective = steps, objective
        self.model = KernelModel(steps.clusters, tasks, seed)
        self._known: list[Seen] = self.model.table.timings(steps.clusters)
        self._fitted = 0
        self._tried = np.zeros(len(self.model.table), np.int64)
        self._settled: dict[CpuConfiguration, Rows] | None = None
        self._again: dict[CpuConfiguration, Rows] = {}
        self.ran: dict[CpuConfiguration, Rows] = {}
        """The schedules that each configuration was last measured with, as indices in their pools."""
        self._points: list[tuple[float, float]] = []
        default = [
            next((i for i, s in enumerate(task.schedules) if s.digest == "default"), 0)
            for task in tasks
        ]
        self.untuned: Rows = np.asarray(default, np.int64)
        """The untuned default of each task, or its first schedule."""

    @property
    def clusters(self) -> Sequence[Cluster]:
        """See `Bench.clusters`."""
        return self._steps.clusters

    @property
    def device(self) -> dict[str, Any]:
        """See `Bench.device`."""
        return self._steps.device

    def measure(self, configuration: CpuConfiguration | None) -> Measured:
        """See `Bench.measure`; the system's own choice is measured with untuned kernels."""
        chosen = self.untuned if configuration is None else self.choose(configuration)
        measured = self._steps.measure(configuration, chosen)
        self._take(configuration, chosen, measured)
        return replace(measured, raw={**(measured.raw or {}), "chosen": chosen.tolist()})

    def choose(self, configuration: CpuConfiguration) -> Rows:
        """The schedule of each task under a configuration, as indices in their pools."""
        if self._settled is not None and configuration in self._settled:
            return self._settled[configuration]
        self._fit()
        table = self.model.table
        seconds, joules = self.model.predict([configuration])
        worth = seconds[0] if joules is None else self._worth(seconds[0], joules[0])
        found = np.empty(len(table.tasks), np.int64)
        for task, (first, end) in enumerate(zip(table.first[:-1], table.first[1:], strict=True)):
            own = worth[first:end]
            alike = np.flatnonzero(own <= own.min() * (1 + _ALIKE))
            found[task] = np.argmin(own)
            if self._settled is None and len(alike) > 1:
                found[task] = alike[np.argmin(self._tried[first:end][alike])]
        if self._settled is not None:
            self._settled[configuration] = found
        return found

    def _worth(self, seconds: Floats, joules: Floats) -> Floats:
        """What calls cost, shape (schedules,): the less, the better for the objective.

        A step is the sum of its calls, so that the best of each task makes the best step. The logarithm of its
        energy-delay product changes by each call's part of its seconds and of its joules. Of a Pareto study, the
        front tells how many joules a second is worth where the step will lie.
        """
        if self._objective in ("latency", "energy"):
            return seconds if self._objective == "latency" else joules
        table = self.model.table
        best = [
            first + int(np.argmin(seconds[first:end] * joules[first:end]))
            for first, end in zip(table.first[:-1], table.first[1:], strict=True)
        ]
        step_s, step_j = table.step(seconds[best]), table.step(joules[best])
        time = 0.5 if self._objective == "edp" else exchange(self._points, step_s)
        return np.asarray(time * seconds / step_s + (1 - time) * joules / step_j)

    def settle(self) -> None:
        """From here on each configuration has one choice: the best that is known now, or what it was before."""
        self._settled = dict(self._again)

    def recall(self, configuration: CpuConfiguration | None, told: Mapping[str, Any]) -> None:
        """Takes up what an earlier part of the search, or another process, measured.

        Args:
            configuration: Under what.
            told: `event`, `chosen`, `task_s` and `figures`, as events have them.
        """
        if told.get("chosen") and told.get("figures"):
            chosen = np.asarray(told["chosen"], np.int64)
            if told["event"] == "final" and configuration is not None:
                self._again[configuration] = chosen
            self._take(configuration, chosen, Measured.of_event(told), told["task_s"])

    def _take(
        self,
        configuration: CpuConfiguration | None,
        chosen: Rows,
        measured: Measured,
        task_s: Sequence[float] | None = None,
    ) -> None:
        task_s = task_s or (measured.raw or {}).get("task_s")
        figures = measured.figures
        if figures is None or configuration is None:
            return
        self.ran[configuration] = chosen
        if not task_s:
            return
        rows = self.model.table.rows(chosen)
        self._tried[rows] += 1
        watts = None
        if figures.energy_j is not None:
            watts = figures.energy_j / figures.time_s
            self._points.append((figures.time_s, figures.energy_j))
        self._known.append(Seen(configuration, rows, np.asarray(task_s, np.float64), watts))

    def _fit(self) -> None:
        if self._known and (
            self._fitted == 0
            or len(self._known) - self._fitted >= max(1, _SELDOM * (len(self._known) - _OFTEN))
        ):
            self.model.learn(self._known)
            self._fitted = len(self._known)


def exchange(points: Sequence[tuple[float, float]], seconds: float) -> float:
    """What a relative saving of time is worth beside one of energy, from 0 to 1, where a front passes some time.

    Args:
        points: Seconds and joules of what is known.
        seconds: Where on the front.
    """
    known = np.log(np.maximum(np.asarray(points, np.float64).reshape(-1, 2), _SMALLEST))
    known = known[front(known)] if len(known) else known
    known = known[np.argsort(known[:, 0])]
    if len(known) < _FEW:
        return 0.5
    at = int(np.clip(np.searchsorted(known[:, 0], np.log(seconds)), 1, len(known) - 1))
    left, right = known[max(0, at - 2)], known[min(len(known) - 1, at + 1)]
    slope = max(0.0, float((left[1] - right[1]) / max(right[0] - left[0], _SMALLEST)))
    return slope / (1 + slope)
