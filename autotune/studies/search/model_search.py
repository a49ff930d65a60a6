"""Chooses the next configuration to measure: first a few designed probes, then the one that the models prefer."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.studies.models import (
    Belief,
    GaussianProcess,
    PowerModel,
    Surrogate,
    TimeModel,
    below,
    expected_hypervolume,
    expected_improvement,
    features,
)
from autotune.studies.space import (
    LARGEST_LISTED,
    NO_LIMITS,
    Clocks,
    ClusterSetting,
    CpuConfiguration,
    CpuSpace,
    Figures,
    Indices,
    Limits,
    Objective,
    front,
)
from autotune.studies.space import objective as goals

Floats = NDArray[np.float64]

CANDIDATES = 4000
"""Configurations considered for each choice in a larger space. Neighbours of the best are added."""

_NEAR = 5
_LIKELY = 0.4
"""A configuration is not measured if its probability of keeping the limits is below this."""


@dataclass(frozen=True)
class Known:
    """A measured configuration, by its number in the space."""

    number: int
    figures: Figures


@dataclass(frozen=True)
class Proposal:
    """A configuration to measure next.

    Attributes:
        number: Its number in the space.
        reason: `probe`, `model` or `grid`.
        belief: The models' prediction: seconds and joules (None without a meter); None for a probe.
    """

    number: int
    reason: str
    belief: Figures | None = None


class Search(Protocol):
    """Chooses the next configuration from what is known."""

    space: CpuSpace
    probes: Sequence[int]

    def propose(self, known: Sequence[Known], taken: Collection[int]) -> Proposal | None:
        """Returns the next configuration to measure; None if all were measured.

        Args:
            known: Valid measurements.
            taken: Numbers of configurations that are measured, failed, or being measured by others.
        """


class GridSearch:
    """Tries all configurations in order.

    Args:
        space: Configurations that may be chosen.
    """

    def __init__(self, space: CpuSpace) -> None:
        self.space = space
        self.probes: Sequence[int] = ()

    def propose(self, known: Sequence[Known], taken: Collection[int]) -> Proposal | None:
        """See `Search.propose`."""
        every = np.sort(self.space.numbers(np.random.default_rng(0), LARGEST_LISTED))
        number = next((int(n) for n in every if int(n) not in taken), None)
        return None if number is None else Proposal(number, "grid")


class ModelSearch:
    """The model-based search. It has no state, so that several processes can share what is known.

    Args:
        space: Configurations that may be chosen.
        objective: The figure to minimise.
        limits: Limits to keep.
        seed: Seed of every random draw.
    """

    def __init__(
        self, space: CpuSpace, objective: Objective, limits: Limits = NO_LIMITS, *, seed: int = 0
    ) -> None:
        self.space = space
        self.objective: Objective = objective
        self.limits = limits
        self._seed = seed
        self.probes: Sequence[int] = self._design()

    def propose(self, known: Sequence[Known], taken: Collection[int]) -> Proposal | None:
        """See `Search.propose`."""
        probe = next((n for n in self.probes if n not in taken), None)
        if probe is not None:
            return Proposal(probe, "probe")
        rng = np.random.default_rng([self._seed, len(taken)])
        candidates = self._candidates(known, taken, rng)
        if not candidates.size:
            return None
        surrogate = self.fit(known)
        if surrogate is None:
            return Proposal(int(rng.choice(candidates)), "model")
        clocks = self.space.clocks(candidates)
        belief = surrogate.predict_clocks(clocks)
        worth = self._worth(surrogate, known, belief, clocks, rng)
        best = int(np.argmax(worth))
        seconds = math.exp(belief.log_s[best])
        joules = None if belief.log_w is None else seconds * math.exp(belief.log_w[best])
        return Proposal(int(candidates[best]), "model", Figures(seconds, joules))

    def fit(self, known: Sequence[Known]) -> Surrogate | None:
        """Fits the models to what is known; returns None if nothing is."""
        if not known:
            return None
        seconds = np.asarray([k.figures.time_s for k in known])
        joules = [k.figures.energy_j for k in known]
        # The difference of two powers may be negative if the load draws little.
        watts = None
        if all(j is not None for j in joules):
            floor = 1e-3 * max(float(j or 0) / s for j, s in zip(joules, seconds, strict=True))
            watts = np.maximum(np.asarray(joules, np.float64) / seconds, max(floor, 1e-9))
        configurations = [self.space.at(k.number) for k in known]
        return Surrogate.fit(self.space.clusters, configurations, seconds, watts)

    def _worth(
        self,
        surrogate: Surrogate,
        known: Sequence[Known],
        belief: Belief,
        clocks: Clocks,
        rng: np.random.Generator,
    ) -> Floats:
        own = surrogate.predict([self.space.at(k.number) for k in known])
        kept = np.asarray([self.limits.kept(k.figures) for k in known])
        likely = self._likely(belief, known, clocks)
        if not kept.any():
            # No known configuration keeps the limits, so look for one.
            return likely
        if (likely >= _LIKELY).any():
            # The most promising configuration would often break a limit. Small chances of a large gain are not
            # pursued.
            likely = np.where(likely >= _LIKELY, likely, 0.0)
        if self.objective == "pareto":
            points = np.stack([own.log_s, own.log_j], axis=1)[kept]
            return likely * expected_hypervolume(belief, points, rng)
        mean, deviation = self._single(belief)
        best = float(self._single(own)[0][kept].min())
        return likely * expected_improvement(mean, deviation, best)

    def _single(self, belief: Belief) -> tuple[Floats, Floats]:
        if self.objective == "latency":
            return belief.log_s, belief.log_s_sd
        assert belief.log_w_sd is not None
        times = 1 if self.objective == "energy" else 2
        mean = belief.log_j + (times - 1) * belief.log_s
        return mean, np.hypot(times * belief.log_s_sd, belief.log_w_sd)

    def _likely(self, belief: Belief, known: Sequence[Known], clocks: Clocks) -> Floats:
        """Returns the probability that a configuration keeps the limits."""
        found = np.ones(len(belief.log_s))
        limits = self.limits
        if limits.time_s is not None:
            found *= below(belief.log_s, belief.log_s_sd, math.log(limits.time_s))
        if limits.energy_j is not None and belief.log_w_sd is not None:
            deviation = np.hypot(belief.log_s_sd, belief.log_w_sd)
            found *= below(belief.log_j, deviation, math.log(limits.energy_j))
        for name in ("celsius", "memory_bytes"):
            limit = getattr(limits, name)
            values_of = [(k, float(getattr(k.figures, name))) for k in known
                    if getattr(k.figures, name) is not None]  # fmt: skip
            if limit is not None and len(values_of) > 1:
                found *= self._below_limit(values_of, limit, clocks)
        return found

    def _below_limit(
        self, values_of: Sequence[tuple[Known, float]], limit: float, clocks: Clocks
    ) -> Floats:
        at = Clocks.of([self.space.at(k.number) for k, _ in values_of], self.space.clusters)
        inputs, groups = features(at, self.space.clusters)
        values = np.asarray([value for _, value in values_of])
        middle, span = float(values.mean()), float(values.std()) or 1.0
        process = GaussianProcess.fit(inputs, (values - middle) / span, groups, noise=0.1)
        mean, deviation = process.predict(features(clocks, self.space.clusters)[0])
        return below(mean, deviation, (limit - middle) / span)

    def _candidates(
        self, known: Sequence[Known], taken: Collection[int], rng: np.random.Generator
    ) -> Indices:
        found = self.space.numbers(rng, CANDIDATES)
        if known and self.space.size > CANDIDATES:
            # Neighbours of the best are worth considering, even if the sample contains few of them.
            ranked = self._best(known)
            near = [self.space.neighbours(k.number) for k in ranked]
            found = np.unique(np.concatenate([found, *near]))
        return found[~np.isin(found, np.asarray(sorted(taken), np.int64))]

    def _best(self, known: Sequence[Known]) -> list[Known]:
        if self.objective == "pareto":
            points = [goals.values("pareto", k.figures) for k in known]
            return [known[i] for i in front(points)]
        return sorted(known, key=lambda k: goals.values(self.objective, k.figures))[:_NEAR]

    def _design(self) -> tuple[int, ...]:
        """Returns the probes, ordered by their expected quality before anything is measured.

        For each cluster: all its cores at the highest clock, one core at the lowest, and half of them at the
        highest; also all cores of the device.
        """
        wanted = []
        clusters = self.space.clusters
        for index, cluster in enumerate(clusters):
            size = len(cluster.cpus)
            low, high = cluster.min_khz, cluster.max_khz
            for cores, khz in ((size, high), (1, low), (max(1, size // 2), high)):
                one = [ClusterSetting(0)] * len(clusters)
                one[index] = ClusterSetting(cores, khz)
                wanted.append(one)
        wanted.append([ClusterSetting(len(c.cpus), c.max_khz) for c in clusters])
        every = self.space.numbers(np.random.default_rng(self._seed), CANDIDATES)
        near = dict.fromkeys(self._number(one, every) for one in wanted)
        return self._ordered(np.asarray(list(near), np.int64))

    def _number(self, wanted: Sequence[ClusterSetting], every: Indices) -> int:
        """Returns a probe's number, or that of the nearest configuration in the space."""
        probe = CpuConfiguration(tuple(wanted), sum(setting.cores for setting in wanted))
        # A sample of a large space has nothing near most probes.
        return self.space.number(probe) if probe in self.space else self._nearest(wanted, every)

    def _nearest(self, wanted: Sequence[ClusterSetting], every: Indices) -> int:
        clusters = self.space.clusters
        at = self.space.clocks(every)
        highest = [c.max_khz or 1_000_000 for c in clusters]
        cores = np.asarray([s.cores for s in wanted], np.float64)
        ghz = np.asarray([(s.khz or top) / 1e6 for s, top in zip(wanted, highest, strict=True)])
        goal = Clocks(cores[None], ghz[None], cores.sum(keepdims=True))
        distance = ((features(at, clusters)[0] - features(goal, clusters)[0]) ** 2).sum(axis=1)
        return int(every[int(np.argmin(distance))])

    def _ordered(self, numbers: Indices) -> tuple[int, ...]:
        clusters = self.space.clusters
        clocks = self.space.clocks(numbers)
        seconds, busy = TimeModel.prior(clusters).predict(clocks)
        joules = seconds * PowerModel.prior(clusters).predict(clocks, busy)
        by = {"latency": seconds, "energy": joules, "edp": seconds * joules}
        if self.objective != "pareto":
            return tuple(int(n) for n in numbers[np.argsort(by[self.objective], kind="stable")])
        # The ends of the front come first, alternating.
        fast, frugal = (list(np.argsort(values, kind="stable")) for values in (seconds, joules))
        turns = [i for pair in zip(fast, frugal, strict=True) for i in pair]
        return tuple(int(numbers[i]) for i in dict.fromkeys(turns))
