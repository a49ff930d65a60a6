"""Predicts seconds and joules of schedules under CPU configurations.

XGBoost models what physics leaves unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xgboost
from numpy.typing import NDArray

from autotune.devices import Cluster
from autotune.studies.models.roofline import Nests, Roofline
from autotune.studies.models.schedule_pools import HYBRID, TaskPool
from autotune.studies.space import Clocks, ClusterSetting, CpuConfiguration

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_TREES = {"tree_method": "hist", "max_depth": 6, "eta": 0.12, "subsample": 0.8, "nthread": 1}
_ROUNDS, _MOST_ROWS = 120, 12_000
_SMALLEST_S, _SMALLEST_W = 1e-7, 1e-6
_ALIKE = 2.0
"""Number of timings of a schedule that weigh as much as the assumption that it resembles others with its traits."""


@dataclass(frozen=True)
class Seen:
    """Calls that were timed.

    Attributes:
        configuration: The configuration during the calls.
        rows: Rows of their schedules in the table, shape (n,).
        seconds: Seconds of one call of each, shape (n,).
        watts: Mean power above idle during the calls; None without a meter.
    """

    configuration: CpuConfiguration
    rows: Rows
    seconds: Floats
    watts: float | None = None


class ScheduleTable:
    """The schedules of all pools as arrays: row `first[t] + i` is schedule i of task t.

    Args:
        tasks: The pools.
        counts: The most often that a step runs each task. Errors of calls are weighted by it.
    """

    def __init__(self, tasks: Sequence[TaskPool], counts: Floats) -> None:
        self.tasks = tuple(tasks)
        sizes = [len(task.schedules) for task in tasks]
        self.first: Rows = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.task = np.repeat(np.arange(len(tasks)), sizes)
        self.count = counts
        self.nests = Nests.of([schedule.traits for task in tasks for schedule in task.schedules])
        kinds = sorted({(task.operator, task.role) for task in tasks})
        kind = np.asarray([kinds.index((task.operator, task.role)) for task in tasks])
        near, far = self.nests.near.sum(axis=1), self.nests.far.sum(axis=1)
        work = np.log2(np.column_stack([near, far]) + 1)
        self.static = np.column_stack(
            [work, work[:, 1:] - work[:, :1], np.log2(self.nests.jobs.max(axis=1)), kind[self.task]]
        )

    def __len__(self) -> int:
        return len(self.task)

    def rows(self, chosen: Rows) -> Rows:
        """Returns the rows of the schedules chosen by their index in each task's pool."""
        return np.asarray(self.first[:-1] + chosen)

    def pools(self) -> list[tuple[int, int]]:
        """Returns the first row of each task, and the row after its last."""
        return list(pairwise(self.first.tolist()))

    def timings(self, clusters: Sequence[Cluster]) -> list[Seen]:
        """Returns the runs' timings of the schedules, each on all cores of its cluster at the highest clock."""
        schedules = [schedule for task in self.tasks for schedule in task.schedules]
        found = []
        for name in sorted({name for one in schedules for name in one.ms}):
            settings = tuple(
                ClusterSetting(len(c.cpus), c.max_khz) if name in (c.name, HYBRID) else _ALONE
                for c in clusters
            )
            if cores := sum(setting.cores for setting in settings):
                rows = [row for row, one in enumerate(schedules) if name in one.ms]
                seconds = np.asarray([schedules[row].ms[name] / 1e3 for row in rows])
                found.append(
                    Seen(CpuConfiguration(settings, cores), np.asarray(rows, np.int64), seconds)
                )
        return found


_ALONE = ClusterSetting(0)


class KernelModel:
    """Learns from calls that were timed.

    Args:
        clusters: The device's clusters.
        tasks: The kernels and their schedules.
        counts: The most often that a step runs each task, shape (tasks,).
        seed: Seed of the trees.
    """

    def __init__(
        self, clusters: Sequence[Cluster], tasks: Sequence[TaskPool], counts: Floats, seed: int
    ) -> None:
        self.clusters = tuple(clusters)
        self.table = ScheduleTable(tasks, counts)
        self._seed = seed
        self._roofline = Roofline(clusters)
        self._time: xgboost.Booster | None = None
        self._watts: xgboost.Booster | None = None
        self._own: Floats = np.zeros(len(self.table))
        """Each schedule's own deviation from the prediction for its traits, as a logarithm."""

    def learn(self, seen: Sequence[Seen]) -> None:
        """Fits prices, trees and each schedule's own deviation to all measurements so far; at least one call."""
        table = self.table
        measured = [np.maximum(one.seconds, _SMALLEST_S) for one in seen]
        # Errors are weighted by a call's share of a step, with a floor so that small kernels still count.
        shares = [
            t * table.count[table.task[one.rows]] for one, t in zip(seen, measured, strict=True)
        ]
        weights = [np.sqrt(share / share.sum()) for share in shares]
        configurations = [one.configuration for one in seen]
        nests = [table.nests.take(one.rows) for one in seen]
        self._roofline.fit(configurations, nests, measured, weights)
        parts = [self._inputs([one.configuration], one.rows) for one in seen]
        inputs = np.concatenate([found for found, _ in parts])
        rest = np.concatenate([np.log(t) - b for t, (_, b) in zip(measured, parts, strict=True)])
        weight = np.concatenate(weights)
        watts = np.concatenate(
            [
                np.full(
                    len(one.rows),
                    math.nan if one.watts is None else math.log(max(one.watts, _SMALLEST_W)),
                )
                for one in seen
            ]
        )
        rng = np.random.default_rng([self._seed, len(seen)])
        kept = np.arange(len(inputs))
        if len(inputs) > _MOST_ROWS:
            kept = rng.choice(len(inputs), _MOST_ROWS, replace=False, p=weight / weight.sum())
        self._time = self._fitted(inputs[kept], rest[kept], weight[kept])
        missed = rest - self._time.predict(xgboost.DMatrix(inputs))
        rows, size = np.concatenate([one.rows for one in seen]), len(table)
        times = np.bincount(rows, minlength=size)
        self._own = np.bincount(rows, missed, size) / (times + _ALIKE)
        known = kept[~np.isnan(watts[kept])]
        if known.size:
            self._watts = self._fitted(inputs[known], watts[known], weight[known])

    def _fitted(self, inputs: Floats, targets: Floats, weights: Floats) -> xgboost.Booster:
        middle = float(np.average(targets, weights=weights))
        return xgboost.train(
            {**_TREES, "seed": self._seed, "base_score": middle},
            xgboost.DMatrix(inputs, targets, weight=weights),
            _ROUNDS,
        )

    def predict(self, configurations: Sequence[CpuConfiguration]) -> tuple[Floats, Floats | None]:
        """Predicts seconds and joules of a call of each schedule, shape (configurations, schedules).

        Joules are None if no measurement had any.
        """
        rows = np.arange(len(self.table))
        inputs, base = self._inputs(configurations, rows)
        shape = len(configurations), len(rows)
        matrix = xgboost.DMatrix(inputs)
        more = 0.0 if self._time is None else self._time.predict(matrix)
        seconds = np.exp((base + more).reshape(shape) + self._own)
        if self._watts is None:
            return seconds, None
        return seconds, seconds * np.exp(self._watts.predict(matrix)).reshape(shape)

    def _inputs(
        self, configurations: Sequence[CpuConfiguration], rows: Rows
    ) -> tuple[Floats, Floats]:
        """Returns the trees' inputs, one row a pair, and the logarithm of the seconds that physics predicts."""
        clocks = Clocks.of(configurations, self.clusters)
        seconds = self._roofline.seconds(configurations, self.table.nests.take(rows))
        base = np.log(np.maximum(seconds, _SMALLEST_S)).reshape(-1, 1)
        ghz = np.where(clocks.cores > 0, clocks.ghz, 0.0)
        config = np.column_stack([clocks.cores, ghz, clocks.threads])
        return (
            np.column_stack(
                [
                    np.repeat(config, len(rows), axis=0),
                    np.tile(self.table.static[rows], (len(configurations), 1)),
                    base,
                ]
            ),
            base[:, 0],
        )
