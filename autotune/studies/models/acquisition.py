"""Acquisition functions: the expected value of measuring a configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.studies.models.surrogate import Belief
from autotune.studies.space import front, improvement

Floats = NDArray[np.float64]

_DRAWS = 24
_MARGIN = 0.1
"""Distance of the reference point beyond the worst measured point, in logarithms."""


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Returns how far a value falls below `best` on average (Jones, Schonlau and Welch, 1998).

    Args:
        mean: Mean of each value, shape (n,).
        deviation: Its standard deviation, shape (n,).
        best: The smallest value so far.
    """
    ahead = (best - mean) / deviation
    return np.asarray(deviation * (ahead * ndtr(ahead) + _density(ahead)))


def expected_hypervolume(belief: Belief, known: Floats, rng: np.random.Generator) -> Floats:
    """Returns the hypervolume that a configuration adds on average to a front of log seconds and log joules.

    The method is that of Emmerich et al. (2006), estimated with a few draws that all configurations share. Joules
    are seconds times watts, so an error in time is also an error in energy.

    Args:
        belief: Prediction for each configuration, including watts.
        known: Log seconds and log joules of the measured points, shape (n, 2); at least one.
        rng: Source of the draws.
    """
    assert belief.log_w is not None and belief.log_w_sd is not None
    normal = rng.normal(size=(_DRAWS, 2, 1))
    log_s = belief.log_s + normal[:, 0] * belief.log_s_sd
    log_w = belief.log_w + normal[:, 1] * belief.log_w_sd
    reference: Sequence[float] = (known.max(axis=0) + _MARGIN).tolist()
    gains = improvement(np.stack([log_s, log_s + log_w], axis=-1), known[front(known)], reference)
    return np.asarray(gains.mean(axis=0))


def below(mean: Floats, deviation: Floats, limit: float) -> Floats:
    """Returns the probability that a value is at most `limit`."""
    return np.asarray(ndtr((limit - mean) / np.maximum(deviation, 1e-12)))


def _density(x: Floats) -> Floats:
    """Returns the density of the standard normal distribution. (`scipy.stats` takes half a second to import.)"""
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
