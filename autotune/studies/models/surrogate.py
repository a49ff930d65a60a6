"""Predicts configurations that a study has not measured.

A Gaussian process models what physics leaves unexplained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Cluster
from autotune.studies.models.gaussian import GaussianProcess
from autotune.studies.models.physics import PowerModel, TimeModel, top_ghz
from autotune.studies.space import Clocks, CpuConfiguration

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Belief:
    """Normal distributions of logarithms, each of shape (n,).

    Attributes:
        log_s: Mean of the logarithm of a step's seconds.
        log_s_sd: Its standard deviation.
        log_w: Mean of the logarithm of the watts above idle; None if there is no energy data.
        log_w_sd: Its standard deviation.
    """

    log_s: Floats
    log_s_sd: Floats
    log_w: Floats | None
    log_w_sd: Floats | None

    @property
    def log_j(self) -> Floats:
        """Mean of the logarithm of a step's joules."""
        assert self.log_w is not None
        return self.log_s + self.log_w


@dataclass(frozen=True)
class Surrogate:
    """Models of time and power with their Gaussian processes; see `fit`."""

    clusters: tuple[Cluster, ...]
    time: TimeModel
    power: PowerModel | None
    _time_rest: GaussianProcess
    _power_rest: GaussianProcess | None

    @classmethod
    def fit(
        cls,
        clusters: Sequence[Cluster],
        configurations: Sequence[CpuConfiguration],
        seconds: Floats,
        watts: Floats | None,
        *,
        noise: float = 0.03,
    ) -> Surrogate:
        """Fits both models, and Gaussian processes to their residuals.

        Args:
            clusters: The device's clusters.
            configurations: The measured configurations; at least one.
            seconds: Seconds of a step, shape (n,).
            watts: Mean power above idle, shape (n,); None without a meter.
            noise: Approximate relative deviation of a measurement.
        """
        clocks = Clocks.of(configurations, clusters)
        inputs, groups = features(clocks, clusters)
        time = TimeModel.fit(clocks, seconds, clusters)
        predicted, busy = time.predict(clocks)
        time_rest = GaussianProcess.fit(
            inputs, np.log(seconds) - np.log(predicted), groups, noise=noise
        )
        power, power_rest = None, None
        if watts is not None:
            power = PowerModel.fit(clocks, watts, busy, clusters)
            rest = np.log(watts) - np.log(power.predict(clocks, busy))
            power_rest = GaussianProcess.fit(inputs, rest, groups, noise=noise)
        return cls(tuple(clusters), time, power, time_rest, power_rest)

    def predict(self, configurations: Sequence[CpuConfiguration]) -> Belief:
        """Predicts configurations."""
        return self.predict_clocks(Clocks.of(configurations, self.clusters))

    def predict_clocks(self, clocks: Clocks) -> Belief:
        """Predicts configurations that are arrays already; see `predict`."""
        inputs, _ = features(clocks, self.clusters)
        seconds, busy = self.time.predict(clocks)
        mean, deviation = self._time_rest.predict(inputs)
        log_s = np.log(seconds) + mean
        if self.power is None or self._power_rest is None:
            return Belief(log_s, deviation, None, None)
        more, spread = self._power_rest.predict(inputs)
        log_w = np.log(self.power.predict(clocks, busy)) + more
        return Belief(log_s, deviation, log_w, spread)

    def errors(self) -> dict[str, float]:
        """Returns the median relative error when each measurement is predicted from the others."""
        found = {"time": _median_error(self._time_rest)}
        if self._power_rest is not None:
            found["power"] = _median_error(self._power_rest)
        return found


def _median_error(process: GaussianProcess) -> float:
    return math.expm1(float(np.median(np.abs(process.left_out()))))


def features(clocks: Clocks, clusters: Sequence[Cluster]) -> tuple[Floats, list[int]]:
    """Returns features of each cluster (in use, share of its cores, clock, full) and the threads per core.

    Returns:
        Shape (n, features), each of about unit range; and the group of each feature. Features of a group share a
        length scale.
    """
    sizes = np.asarray([len(c.cpus) for c in clusters], np.float64)
    top = top_ghz(clusters)
    low = np.asarray([(c.min_khz or c.max_khz or 1_000_000) / 1e6 for c in clusters])
    span = np.maximum(np.log(top / low), 1e-9)
    used = clocks.cores > 0
    clock = np.where(used, np.log(clocks.ghz / low) / span, 0.0)
    parts = [
        used.astype(np.float64),
        clocks.cores / sizes,
        clock,
        (clocks.cores == sizes).astype(np.float64),
        np.log(clocks.threads / clocks.cores.sum(axis=1))[:, None],
    ]
    groups = [index for index, part in enumerate(parts) for _ in range(part.shape[1])]
    return np.concatenate(parts, axis=1), groups
