"""A physical model of time and power: a few constants for each cluster, fitted to a few measurements.

One core of cluster k at f GHz needs `a_k + b_k / f` seconds a step; the first term is time spent waiting for memory
at any clock. A share of the step runs on one core only (Amdahl, 1967). The rest is split evenly over the threads,
so the slowest core decides (EMDL'21). Each further thread costs a little time at the end of every parallel loop. A
busy core draws `c_k + d_k f^g_k` watts above idle; a waiting core draws a share of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from autotune.devices import Cluster
from autotune.studies.space import Clocks, Floats

_NOISE = 0.05
"""Deviation of a logarithm against which the priors below are weighed. The Gaussian process models what remains."""

# Priors before anything is measured. They are weak: a few measurements outweigh them.
_WAITING = 0.2
"""Share of a core's time at its highest clock that waits for memory."""
_SERIAL = 0.05
_THREAD = 2e-3
_STATIC = 0.15
"""Watts at any clock, relative to the dynamic watts at 1 GHz."""
_GROWTH = 0.7
"""The clock's exponent minus 1: between a fixed voltage (0) and a voltage that rises with the clock (2)."""
_IDLING = 0.15


def _prior(clusters: Sequence[Cluster]) -> Floats:
    """Returns the slowdown of each cluster's core from the fastest cluster's at the same clock, as a logarithm."""
    best = max((c.capacity or 0) / ((c.max_khz or 1e6) / 1e6) for c in clusters)
    found = []
    for cluster in clusters:
        if not best or not cluster.capacity:
            found.append(0.0)
        else:
            found.append(math.log(best / (cluster.capacity / ((cluster.max_khz or 1e6) / 1e6))))
    return np.asarray(found)


@dataclass(frozen=True)
class TimeModel:
    """Predicts the seconds of a step.

    Attributes:
        wait_s: `a` of each cluster: seconds that one core waits at any clock.
        work_s: `b` of each cluster: seconds that one core works at 1 GHz.
        serial: Share of the step that one core does alone.
        thread_s: Seconds that each further thread costs.
    """

    wait_s: Floats
    work_s: Floats
    serial: float
    thread_s: float

    def alone_s(self, clocks: Clocks) -> Floats:
        """Returns seconds of a step on one core of each cluster, shape (n, clusters)."""
        return self.wait_s + self.work_s / clocks.ghz

    def predict(self, clocks: Clocks) -> tuple[Floats, Floats]:
        """Predicts seconds of a step, shape (n,), and the share of them in which a core of each cluster is busy."""
        used = clocks.cores > 0
        alone = self.alone_s(clocks)
        total = clocks.cores.sum(axis=1)
        share = (1 - self.serial) * alone / np.maximum(clocks.threads, total)[:, None]
        # If there are more threads than cores, they share the cores, and the last round may be half empty.
        rounds = np.ceil(clocks.threads / total) * np.maximum(1.0, total / clocks.threads)
        share = share * rounds[:, None]
        parallel = np.where(used, share, 0.0).max(axis=1)
        leader = np.where(used, alone, np.inf).min(axis=1)
        time = parallel + self.serial * leader + self.thread_s * np.maximum(0.0, clocks.threads - 1)
        return time, np.where(used, share / time[:, None], 0.0)

    @classmethod
    def prior(cls, clusters: Sequence[Cluster]) -> TimeModel:
        """Returns the model before anything is measured, for a step that is one unit of work."""
        slower = np.exp(_prior(clusters))
        return cls(_WAITING * slower / top_ghz(clusters), slower, _SERIAL, _THREAD)

    @classmethod
    def fit(cls, clocks: Clocks, seconds: Floats, clusters: Sequence[Cluster]) -> TimeModel:
        """Fits by least squares of logarithms. Weak priors hold constants that the measurements do not determine.

        Args:
            clocks: The measured configurations.
            seconds: Seconds of a step, shape (n,).
            clusters: The device's clusters.
        """
        count = len(clusters)
        slower = _prior(clusters)
        top = top_ghz(clusters)
        log_s = np.log(seconds)
        scale = float(np.median(log_s - np.log(cls.prior(clusters).predict(clocks)[0])))

        def build(x: Floats) -> TimeModel:
            work = np.exp(x[:count])
            wait = np.exp(x[count : 2 * count])
            return cls(wait, work, float(np.exp(min(x[2 * count], -0.1))), float(np.exp(x[-1])))

        centre = np.concatenate(
            [slower + scale, slower + scale - np.log(top) + math.log(_WAITING), [math.log(_SERIAL)],
             [scale + math.log(_THREAD)]]
        )  # fmt: skip
        width = np.concatenate([np.full(count, 0.7), np.full(count, 1.2), [1.0], [1.5]])

        def errors(x: Floats) -> Floats:
            found = np.log(build(x).predict(clocks)[0])
            return np.concatenate([(found - log_s) / _NOISE, (x - centre) / width])

        return build(np.asarray(least_squares(errors, centre, loss="soft_l1", max_nfev=60).x))


@dataclass(frozen=True)
class PowerModel:
    """Predicts watts above idle.

    Attributes:
        static_w: `c` of each cluster: watts of a busy core at any clock.
        dynamic_w: `d` of each cluster: further watts of a busy core at 1 GHz.
        exponent: `g` of each cluster.
        waiting: Share of a busy core's power that a waiting one draws.
    """

    static_w: Floats
    dynamic_w: Floats
    exponent: Floats
    waiting: float

    def predict(self, clocks: Clocks, busy: Floats) -> Floats:
        """Predicts watts, shape (n,), from the share of time in which a core of each cluster is busy."""
        core = self.static_w + self.dynamic_w * clocks.ghz**self.exponent
        return np.asarray((clocks.cores * core * (busy + self.waiting * (1 - busy))).sum(axis=1))

    @classmethod
    def prior(cls, clusters: Sequence[Cluster]) -> PowerModel:
        """Returns the model before anything is measured: a core that is k times slower draws k times less."""
        slower = np.exp(_prior(clusters))
        exponent = np.full(len(clusters), 1 + _GROWTH)
        return cls(_STATIC / slower, 1 / slower, exponent, _IDLING)

    @classmethod
    def fit(
        cls, clocks: Clocks, watts: Floats, busy: Floats, clusters: Sequence[Cluster]
    ) -> PowerModel:
        """Fits the model as `TimeModel.fit` does.

        Args:
            clocks: The measured configurations.
            watts: Mean power above idle, shape (n,).
            busy: The time model's shares, shape (n, clusters).
            clusters: The device's clusters.
        """
        count = len(clusters)
        log_w = np.log(watts)
        scale = float(np.median(log_w - np.log(cls.prior(clusters).predict(clocks, busy))))

        def build(x: Floats) -> PowerModel:
            static, dynamic = np.exp(x[:count]), np.exp(x[count : 2 * count])
            exponent = 1.0 + np.exp(x[2 * count : 3 * count])
            return cls(static, dynamic, exponent, float(np.exp(min(x[-1], 0.0))))

        centre = np.concatenate(
            [scale - _prior(clusters) + math.log(_STATIC), scale - _prior(clusters),
             np.full(count, math.log(_GROWTH)), [math.log(_IDLING)]]
        )  # fmt: skip
        width = np.concatenate(
            [np.full(count, 1.5), np.full(count, 0.8), np.full(count, 0.5), [0.7]]
        )

        def errors(x: Floats) -> Floats:
            found = np.log(build(x).predict(clocks, busy))
            return np.concatenate([(found - log_w) / _NOISE, (x - centre) / width])

        return build(np.asarray(least_squares(errors, centre, loss="soft_l1", max_nfev=60).x))


def top_ghz(clusters: Sequence[Cluster]) -> Floats:
    """Returns the highest clock of each cluster in GHz; 1 if it is unknown."""
    return np.asarray([(c.max_khz or 1e6) / 1e6 for c in clusters])


def constants(time: TimeModel, power: PowerModel | None, names: Sequence[str]) -> dict[str, Any]:
    """Returns the fitted constants as a plain object, for people to read."""
    found: dict[str, Any] = {"serial_share": time.serial, "thread_s": time.thread_s, "clusters": {}}
    for index, name in enumerate(names):
        found["clusters"][name] = {
            "a_s": float(time.wait_s[index]),
            "b_s_ghz": float(time.work_s[index]),
        }
        if power is not None:
            found["clusters"][name] |= {
                "c_w": float(power.static_w[index]),
                "d_w": float(power.dynamic_w[index]),
                "g": float(power.exponent[index]),
            }
    return found
