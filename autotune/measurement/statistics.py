"""Statistics of paired, interleaved timings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval, both ends included."""

    estimate: float
    low: float
    high: float


def median(samples: Sequence[float]) -> float:
    """Median of the samples, in their unit."""
    return float(np.median(np.asarray(samples, dtype=np.float64)))


def paired_speedup(
    baseline: Sequence[float], challenger: Sequence[float], *, seed: int, confidence: float = 0.95
) -> Interval:
    """Speed-up of a challenger over a baseline measured in the same blocks.

    Pairs the i-th block of both, so that drift which both share cancels; the estimate is the median of
    the block ratios and its interval a percentile bootstrap over blocks (Efron and Tibshirani, 1993).

    Args:
        baseline: Seconds a block.
        challenger: Seconds a block, of the same length.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ValueError: The two differ in length, or are empty.
    """
    if len(baseline) != len(challenger) or not baseline:
        raise ValueError("a paired speed-up needs the same number of blocks on both sides")
    ratios = np.asarray(baseline, dtype=np.float64) / np.asarray(challenger, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(ratios), size=(_RESAMPLES, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(np.median(ratios)), float(low), float(high))


def bootstrap_median(samples: Sequence[float], *, seed: int, confidence: float = 0.95) -> Interval:
    """Median with a percentile bootstrap interval (Efron and Tibshirani, 1993).

    Args:
        samples: Values, at least one; of one alone the interval is itself.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ValueError: There is no value.
    """
    if not samples:
        raise ValueError("no value has no median")
    values = np.asarray(samples, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(values), size=(_RESAMPLES, len(values)))
    medians = np.median(values[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(np.median(values)), float(low), float(high))
