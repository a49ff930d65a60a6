"""How much a configuration is worth measuring."""

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
"""How far the reference point lies beyond the worst measured one, in logarithms."""


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """How much smaller than `best` a value is on average (Jones, Schonlau and Welch, 1998).

    Args:
        mean: Of each value, shape (n,).
        deviation: Its standard deviation, shape (n,).
        best: The least one so far.
    """
    ahead = (best - mean) / deviation
    return np.asarray(deviation * (ahead * ndtr(ahead) + _density(ahead)))


def expected_hypervolume(belief: Belief, known: Floats, rng: np.random.Generator) -> Floats:
    """Hypervolume that a configuration adds on average to a front of log seconds and log joules.

    Emmerich et al. (2006), by a few draws that all configurations share. Joules are seconds times watts, so an
    error of the time is one of the energy as well.

    Args:
        belief: Of each configuration, watts included.
        known: Log seconds and log joules of what is measured, shape (n, 2); at least one.
        rng: Of the draws.
    """
    assert belief.log_w is not None and belief.log_w_sd is not None
    normal = rng.normal(size=(_DRAWS, 2, 1))
    log_s = belief.log_s + normal[:, 0] * belief.log_s_sd
    log_w = belief.log_w + normal[:, 1] * belief.log_w_sd
    reference: Sequence[float] = (known.max(axis=0) + _MARGIN).tolist()
    gains = improvement(np.stack([log_s, log_s + log_w], axis=-1), known[front(known)], reference)
    return np.asarray(gains.mean(axis=0))


def below(mean: Floats, deviation: Floats, limit: float) -> Floats:
    """Probability that a value is at most `limit`."""
    return np.asarray(ndtr((limit - mean) / np.maximum(deviation, 1e-12)))


def _density(x: Floats) -> Floats:
    """Of the standard normal distribution. (`scipy.stats` has it too, and takes half a second to import.)"""
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
