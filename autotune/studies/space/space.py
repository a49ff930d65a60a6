"""The configurations that a device can have: counted, indexed and drawn, without listing millions of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Cluster
from autotune.errors import UsageError
from autotune.studies.space.clocks import Clocks
from autotune.studies.space.configuration import (
    MOST_THREADS_PER_CORE,
    ClusterSetting,
    CpuConfiguration,
)
from autotune.studies.space.ranges import ClusterRange, CpuRanges, Together

Indices = NDArray[np.int64]

LARGEST_LISTED = 100_000
"""Spaces up to this size are considered completely; larger ones are sampled."""

UNLISTED_LEVELS = 8
"""Number of clocks to choose from if a driver accepts any clock."""


@dataclass(frozen=True)
class CpuSpace:
    """A set of numbered configurations; see `of` and `listed`.

    A number has a digit for each cluster (its setting) and one for the threads. Numbers that give no valid
    configuration, such as one with no core at all, are holes.

    Attributes:
        clusters: The device's clusters, from slow to fast.
        settings: The allowed settings of each cluster.
        threads_per_core: The values of the last digit.
        together: Whether clusters may train together: any cores of them, only whole ones, or never.
        only: Numbers of the configurations in a listed space; None for all.
    """

    clusters: tuple[Cluster, ...]
    settings: tuple[tuple[ClusterSetting, ...], ...]
    threads_per_core: tuple[float, ...] = (1.0,)
    together: Together = "any"
    only: tuple[int, ...] | None = None

    @classmethod
    def of(cls, clusters: Sequence[Cluster], ranges: CpuRanges, *, clocks: bool) -> CpuSpace:
        """Returns the space of everything that the device supports and the ranges allow.

        Args:
            clusters: The device's clusters.
            ranges: The allowed ranges.
            clocks: Whether clocks can be set. Without root they are left to the system.

        Raises:
            UsageError: The ranges name a cluster, a count of cores or a clock that the device does not have, or
                they leave no configuration.
        """
        if unknown := set(ranges.clusters) - {c.name for c in clusters}:
            raise UsageError(
                f"the device has no cluster '{min(unknown)}'",
                hint=f"it has {', '.join(c.name for c in clusters)}",
            )
        if max(ranges.threads_per_core) > MOST_THREADS_PER_CORE:
            raise UsageError(
                f"threads_per_core is {max(ranges.threads_per_core):g}",
                hint=f"{MOST_THREADS_PER_CORE} are the most",
            )
        settings = tuple(
            _settings(
                c,
                ranges.clusters.get(c.name, ranges.others),
                clocks=clocks and ranges.clocks == "set",
            )
            for c in clusters
        )
        space = cls(tuple(clusters), settings, ranges.threads_per_core, ranges.together)
        if not space.numbers(np.random.default_rng(0), 1).size:
            raise _nothing_left(space)
        return space

    @classmethod
    def listed(
        cls, clusters: Sequence[Cluster], configurations: Iterable[CpuConfiguration]
    ) -> CpuSpace:
        """Returns a space of only these configurations."""
        wanted = list(configurations)
        settings = tuple(
            # A clock that is left to the system comes last, because it is the highest under load.
            tuple(
                sorted({c.clusters[k] for c in wanted}, key=lambda s: (s.cores, s.khz or math.inf))
            )
            for k in range(len(clusters))
        )
        ratios = tuple(sorted({c.threads / c.cores for c in wanted}))
        whole = cls(tuple(clusters), settings, ratios)
        return cls(
            tuple(clusters), settings, ratios, only=tuple(sorted(whole.number(c) for c in wanted))
        )

    @property
    def _digits(self) -> tuple[int, ...]:
        return (*(len(s) for s in self.settings), len(self.threads_per_core))

    @property
    def _numbers(self) -> int:
        return math.prod(self._digits)

    @cached_property
    def size(self) -> int:
        """Number of configurations."""
        if self.only is not None:
            return len(self.only)
        step = 1 << 20
        starts = range(0, self._numbers, step)
        return sum(
            int(self._real(np.arange(s, min(s + step, self._numbers))).sum()) for s in starts
        )

    def number(self, configuration: CpuConfiguration) -> int:
        """Returns a configuration's number.

        Raises:
            UsageError: It is not in this space.
        """
        per_core = [
            i for i, r in enumerate(self.threads_per_core)
            if threads_of(configuration.cores, r) == configuration.threads
        ]  # fmt: skip
        try:
            digits = [
                row.index(setting)
                for row, setting in zip(self.settings, configuration.clusters, strict=True)
            ]
            # If several ratios round to the same number of threads, the first one is used.
            digits.append(min(per_core))
        except ValueError as error:
            raise UsageError(f"the space has no {configuration}") from error
        found = int(np.ravel_multi_index(digits, self._digits))
        if not self._real(np.asarray([found]))[0] or self._left_out(found):
            raise UsageError(f"the space has no {configuration}")
        return found

    def _left_out(self, number: int) -> bool:
        return self.only is not None and number not in self.only

    def at(self, number: int) -> CpuConfiguration:
        """Returns the configuration of a number that is not a hole."""
        *digits, ratio = np.unravel_index(number, self._digits)
        chosen = tuple(row[int(d)] for row, d in zip(self.settings, digits, strict=True))
        cores = sum(s.cores for s in chosen)
        return CpuConfiguration(chosen, threads_of(cores, self.threads_per_core[int(ratio)]))

    def __contains__(self, configuration: object) -> bool:
        if not isinstance(configuration, CpuConfiguration):
            return False
        try:
            self.number(configuration)
        except UsageError:
            return False
        return True

    def numbers(self, rng: np.random.Generator, count: int) -> Indices:
        """Returns all numbers if there are at most `count`; else about `count` of them, drawn uniformly."""
        if self.only is not None:
            every = np.asarray(self.only, np.int64)
        elif self._numbers <= max(LARGEST_LISTED, count):
            every = np.arange(self._numbers, dtype=np.int64)
        else:
            every = np.unique(rng.integers(0, self._numbers, size=2 * count))
        every = every[self._real(every)]
        return every if len(every) <= count else rng.choice(every, count, replace=False)

    def clocks(self, numbers: Indices) -> Clocks:
        """Converts configurations to arrays."""
        *digits, ratio = np.unravel_index(numbers, self._digits)
        highest = [c.max_khz or 1_000_000 for c in self.clusters]
        cores = np.stack(
            [np.asarray([s.cores for s in row], np.float64)[d]
             for row, d in zip(self.settings, digits, strict=True)], axis=1
        )  # fmt: skip
        ghz = np.stack(
            [np.asarray([(s.khz or top) / 1e6 for s in row])[d]
             for row, d, top in zip(self.settings, digits, highest, strict=True)], axis=1
        )  # fmt: skip
        per_core = np.asarray(self.threads_per_core)[ratio]
        return Clocks(cores, ghz, np.maximum(1.0, np.round(cores.sum(axis=1) * per_core)))

    def neighbours(self, number: int) -> Indices:
        """Returns configurations one step away in one cluster's core count or clock, or in the threads."""
        near = []
        rows: list[Sequence[ClusterSetting | float]] = [*self.settings, self.threads_per_core]
        for axis, row in enumerate(rows):
            digits = list(np.unravel_index(number, self._digits))
            for digit in _steps(row, int(digits[axis])):
                digits[axis] = np.int64(digit)
                near.append(int(np.ravel_multi_index(digits, self._digits)))
        found = np.unique(np.asarray(near, np.int64))
        if self.only is not None:
            found = found[np.isin(found, self.only)]
        return found[self._real(found)]

    def _real(self, numbers: Indices) -> NDArray[np.bool_]:
        *digits, ratio = np.unravel_index(numbers, self._digits)
        cores = np.stack(
            [np.asarray([s.cores for s in row])[d]
             for row, d in zip(self.settings, digits, strict=True)], axis=1
        )  # fmt: skip
        real = cores.sum(axis=1) > 0
        if self.together != "any":
            trains = cores > 0
            alone = trains.sum(axis=1) == 1
            whole = (~trains | (cores == [len(c.cpus) for c in self.clusters])).all(axis=1)
            real &= alone | whole if self.together == "whole" else alone
        total = cores.sum(axis=1)
        threads = np.stack([np.maximum(1, np.round(total * r)) for r in self.threads_per_core])
        own = threads[ratio, np.arange(len(numbers))]
        earlier = np.arange(len(self.threads_per_core))[:, None] < ratio[None, :]
        return np.asarray(real & ~((threads == own) & earlier).any(axis=0))


def threads_of(cores: int, per_core: float) -> int:
    """Returns the number of threads for `cores` cores."""
    return max(1, round(cores * per_core))


def _steps(row: Sequence[ClusterSetting | float], digit: int) -> list[int]:
    """Returns digits one step away: the next clocks with the same count, the next counts at the nearest clock."""
    now = row[digit]
    if not isinstance(now, ClusterSetting):
        return [d for d in (digit - 1, digit + 1) if 0 <= d < len(row)]
    settings = [s for s in row if isinstance(s, ClusterSetting)]
    same = [d for d, s in enumerate(settings) if s.cores == now.cores]
    at = same.index(digit)
    found = [same[i] for i in (at - 1, at + 1) if 0 <= i < len(same)]
    counts = sorted({s.cores for s in settings})
    for i in (counts.index(now.cores) - 1, counts.index(now.cores) + 1):
        if 0 <= i < len(counts):
            there = [d for d, s in enumerate(settings) if s.cores == counts[i]]
            found.append(min(there, key=lambda d: abs((settings[d].khz or 0) - (now.khz or 0))))
    return found


def _nothing_left(space: CpuSpace) -> UsageError:
    if all(setting.cores == 0 for row in space.settings for setting in row):
        return UsageError("the ranges leave no configuration", hint="allow a cluster some cores")
    several = "" if space.together == "never" else "all cores of several, or "
    return UsageError(
        f'the ranges leave no configuration: together = "{space.together}" allows {several}one cluster',
        hint="allow clusters 0 cores, so that they may be left alone",
    )


def _settings(
    cluster: Cluster, allowed: ClusterRange, *, clocks: bool
) -> tuple[ClusterSetting, ...]:
    size = len(cluster.cpus)
    counts = allowed.cores if allowed.cores is not None else tuple(range(size + 1))
    if too_many := [n for n in counts if n > size]:
        raise UsageError(f"cluster '{cluster.name}' has {size} cores, not {too_many[0]}")
    wanted = allowed.frequencies_khz
    offered = cluster.frequencies_khz
    if wanted is not None and not clocks:
        raise UsageError(
            f"clocks of '{cluster.name}' cannot be chosen: they are left to the system",
            hint='setting them takes root, and ranges without clocks = "free"',
        )
    if wanted and offered and (missing := sorted(set(wanted) - set(offered))):
        raise UsageError(
            f"cluster '{cluster.name}' has no clock of {missing[0]} kHz",
            hint=f"it has {', '.join(map(str, offered))}",
        )
    steps: list[int | None] = [*sorted(set(wanted or offered or _any(cluster)))] if clocks else []
    steps = steps or [None]
    if allowed.levels is not None and len(steps) > allowed.levels:
        at = np.linspace(0, len(steps) - 1, allowed.levels).round().astype(int)
        steps = [steps[i] for i in sorted(set(at.tolist()))] if allowed.levels > 1 else [steps[-1]]
    found = [ClusterSetting(0)] if 0 in counts else []
    found += [ClusterSetting(n, khz) for n in sorted(set(counts) - {0}) for khz in steps]
    return tuple(found)


def _any(cluster: Cluster) -> list[int]:
    """Returns clocks of a driver that accepts any clock within its limits."""
    if cluster.min_khz is None or cluster.max_khz is None or not cluster.policies:
        return []
    return [int(k) for k in np.linspace(cluster.min_khz, cluster.max_khz, UNLISTED_LEVELS)]
