"""A physical model of a schedule on cores: operations, loads and memory bytes, each with a price for each cluster.

A thread's part of a loop nest costs cycles for its operations and for loads from near caches. It also costs time,
at any clock, for waiting on far memory (Williams et al., "Roofline", CACM 2009, as a sum). Threads get equal
numbers of the nest's jobs, as TVM's runtime assigns them, and the last thread to finish decides. The prices are
fitted to timed calls and are never below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from autotune.devices import Cluster
from autotune.studies.models.physics import top_ghz
from autotune.studies.space import Clocks, CpuConfiguration
from autotune.workloads import CACHE_SIZES, ScheduleTraits

Floats = NDArray[np.float64]

LANES = 4.0
"""How much less work scalar code does in a cycle than code with 128-bit vectors."""
_NEAR = (2**9, 2**15, 2**16)
_FAR = (2**17, 2**19, 2**20, 2**21, 2**23)
_FLOPS_A_CYCLE = 4.0
_WEAK = 1e-3
"""Weight of the prior's prices beside a measured call."""
_TURNS = 4


@dataclass(frozen=True)
class Nests:
    """Schedules as arrays, padded with nests that do nothing.

    Attributes:
        jobs: Parallel jobs, shape (schedules, nests).
        near: Work that takes cycles: operations, weighted by lanes, and bytes through caches of `_NEAR`; shape
            (schedules, nests, kinds).
        far: Work that takes time: bytes through caches of `_FAR`; shape (schedules, nests, kinds).
    """

    jobs: Floats
    near: Floats
    far: Floats

    @classmethod
    def of(cls, schedules: Sequence[ScheduleTraits]) -> Nests:
        """Converts schedules to arrays."""
        shape = len(schedules), max((len(one.nests) for one in schedules), default=1)
        jobs = np.ones(shape)
        near, far = np.zeros((*shape, 1 + len(_NEAR))), np.zeros((*shape, len(_FAR)))
        for row, one in enumerate(schedules):
            for column, nest in enumerate(one.nests):
                lanes = nest.vector_share + LANES * (1 - nest.vector_share)
                jobs[row, column] = nest.jobs
                near[row, column] = [
                    nest.flops * lanes, *(nest.traffic[CACHE_SIZES.index(size)] for size in _NEAR)
                ]  # fmt: skip
                far[row, column] = [nest.traffic[CACHE_SIZES.index(size)] for size in _FAR]
        return cls(jobs, near, far)

    def take(self, rows: NDArray[np.int64]) -> Nests:
        """Returns some of the schedules."""
        return Nests(self.jobs[rows], self.near[rows], self.far[rows])


class Roofline:
    """Prices of a device's clusters.

    Args:
        clusters: The clusters, from the slowest to the fastest.
    """

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self.clusters = tuple(clusters)
        kinds = 2 * (1 + len(_NEAR)) + len(_FAR)
        capacity = np.asarray([cluster.capacity or 1024 for cluster in clusters], np.float64)
        self._speed = capacity / top_ghz(clusters) / (capacity / top_ghz(clusters)).max()
        prices = np.zeros((len(clusters), kinds))
        prices[:, 0] = 1e-9 / (_FLOPS_A_CYCLE * self._speed)
        self.prices: Floats = prices
        """Seconds of each kind of work, shape (clusters, kinds).

        Kinds: shared and lone cycles at 1 GHz, then waiting.
        """

    def seconds(self, configurations: Sequence[CpuConfiguration], nests: Nests) -> Floats:
        """Returns seconds of a call of each schedule, shape (configurations, schedules)."""
        return np.asarray((self._work(configurations, nests) * self.prices).sum(axis=3).max(axis=2))

    def _work(self, configurations: Sequence[CpuConfiguration], nests: Nests) -> Floats:
        """Returns work of the busiest core of each cluster, shape (configurations, schedules, clusters, kinds)."""
        clocks = Clocks.of(configurations, self.clusters)
        used = clocks.cores > 0
        speed = np.where(used, self._speed * clocks.ghz, 0.0)
        order = np.argsort(-speed, axis=1, kind="stable")
        sorted_cores = np.take_along_axis(clocks.cores, order, axis=1)
        before = np.cumsum(sorted_cores, axis=1) - sorted_cores
        rank = np.empty_like(before)
        np.put_along_axis(rank, order, before, axis=1)
        rounds = np.ceil(clocks.threads / clocks.cores.sum(axis=1))
        jobs = nests.jobs[None]
        most = np.ceil(jobs / clocks.threads[:, None, None])
        found = np.empty((*most.shape[:2], len(self.clusters), self.prices.shape[1]))
        split = nests.near.shape[2]
        for cluster in range(len(self.clusters)):
            first = rank[:, cluster, None, None]
            share = np.clip(jobs - first * most, 0.0, most) / jobs * rounds[:, None, None]
            here = np.where(used[:, cluster, None, None], share, 0.0)
            period = 1 / np.maximum(clocks.ghz[:, cluster], 1e-9)
            found[:, :, cluster, :split] = (
                np.einsum("csn,snk->csk", here, nests.near) * period[:, None, None]
            )
            # Work that only one core does goes to the fastest core, in any cluster.
            leads = (order[:, 0] == cluster) * period
            found[:, :, cluster, split : 2 * split] = (
                nests.near.sum(axis=1)[None] * leads[:, None, None]
            )
            found[:, :, cluster, 2 * split :] = np.einsum("csn,snk->csk", here, nests.far)
        return found

    def fit(
        self,
        configurations: Sequence[CpuConfiguration],
        nests: Sequence[Nests],
        seconds: Sequence[Floats],
        weights: Sequence[Floats],
    ) -> None:
        """Finds the prices with the least relative errors.

        Args:
            configurations: The configuration of each measured step.
            nests: The schedules that ran in it.
            seconds: Seconds of a call of each schedule.
            weights: Weight of each.
        """
        work = [self._work([c], n)[0] for c, n in zip(configurations, nests, strict=True)]
        every = np.concatenate(work)
        measured, weight = np.concatenate(seconds), np.sqrt(np.concatenate(weights))
        for _ in range(_TURNS):
            slowest = (every * self.prices).sum(axis=2).argmax(axis=1)
            prices = self.prices.copy()
            for cluster in range(len(self.clusters)):
                own = slowest == cluster
                if not own.any():
                    continue
                scale = weight[own] / measured[own]
                inputs, goal = every[own, cluster] * scale[:, None], weight[own]
                size = np.sqrt((inputs**2).sum(axis=0)) + 1e-30
                weak = _WEAK * np.sqrt((goal**2).sum())
                stacked = np.vstack([inputs / size, weak * np.eye(len(size))])
                towards = np.concatenate([goal, weak * prices[cluster] * size])
                prices[cluster] = nnls(stacked, towards)[0] / size
            self.prices = prices
