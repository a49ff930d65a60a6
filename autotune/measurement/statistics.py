"""Statistics of paired, interleaved timings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_RESAMPLES = 2000
_LEAST_RESAMPLED = 8
"""With fewer values, resampled medians stay between the smallest and largest value, so intervals are too narrow."""


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval, both ends included."""

    estimate: float
    low: float
    high: float

    @property
    def ends(self) -> list[float] | None:
        """Both ends; None if they are unknown."""
        return [self.low, self.high] if math.isfinite(self.low + self.high) else None


def median(samples: Sequence[float]) -> float:
    """Returns the median of the samples, in their unit."""
    return float(np.median(np.asarray(samples, dtype=np.float64)))


def paired_speedup(
    baseline: Sequence[float], challenger: Sequence[float], *, seed: int, confidence: float = 0.95
) -> Interval:
    """Returns the speed-up of a challenger over a baseline measured in the same blocks.

    The i-th blocks of both form a pair, so that common drift cancels. The estimate is the median of the block
    ratios. Its interval is a percentile bootstrap over blocks (Efron and Tibshirani, 1993). A bootstrap of fewer
    than eight blocks does not reach its coverage, so Student's interval of the ratios' logarithms is used there.

    Args:
        baseline: Seconds for each block, above zero.
        challenger: Seconds for each block, of the same length.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Returns:
        The speed-up. With one block, its interval is everything from 0 on.

    Raises:
        ValueError: The two differ in length, or are empty.
    """
    if len(baseline) != len(challenger) or not baseline:
        raise ValueError("a paired speed-up needs the same number of blocks on both sides")
    ratios = np.asarray(baseline, dtype=np.float64) / np.asarray(challenger, dtype=np.float64)
    if len(ratios) >= _LEAST_RESAMPLED:
        return _bootstrap(ratios, seed, confidence)
    if len(ratios) == 1:
        return Interval(float(ratios[0]), 0.0, math.inf)
    # For an even number, the geometric middle, so that the inverse ratio gives the inverse result.
    return _around(float(np.exp(np.median(np.log(ratios)))), _student_of_logs(ratios, confidence))


def bootstrap_median(
    samples: Sequence[float], *, positive: bool, seed: int, confidence: float = 0.95
) -> Interval:
    """Returns the median with a percentile bootstrap interval (Efron and Tibshirani, 1993).

    With fewer than eight values the interval is Student's.

    Args:
        samples: Values, at least one. With only one, the interval is every possible value.
        positive: Whether they are positive by nature, as seconds and bytes are. Student's interval is then taken on
            their logarithms. Joules above idle are not: noise may make them negative.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ValueError: There is no value, or a value is not above zero although `positive` is set.
    """
    if not samples:
        raise ValueError("no value has no median")
    if positive and min(samples) <= 0:
        raise ValueError(f"{min(samples)} is not above zero")
    values = np.asarray(samples, dtype=np.float64)
    if len(values) >= _LEAST_RESAMPLED:
        return _bootstrap(values, seed, confidence)
    middle = float(np.median(values))
    if len(values) == 1:
        return Interval(middle, 0.0 if positive else -math.inf, math.inf)
    return _around(middle, (_student_of_logs if positive else _student)(values, confidence))


def ratio_of_sums(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    weights: Sequence[float],
    *,
    seed: int,
    confidence: float = 0.95,
) -> Interval:
    """Returns the ratio of two weighted sums of medians that were not measured side by side.

    Each side's samples are resampled separately (percentile bootstrap). The interval therefore contains the noise
    within each side, but not changes between them.

    Args:
        first: Samples of each term, at least one of each, above zero.
        second: Samples of the other side, with as many terms.
        weights: Weight of each term.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Returns:
        First over second. If a term has fewer than eight samples, the interval is everything from 0 on.

    Raises:
        ValueError: The sides have different terms, or none.
    """
    if not len(first) == len(second) == len(weights) or not first:
        raise ValueError("a ratio of sums needs the same terms on both sides")
    sides = [
        sum(weight * median(samples) for weight, samples in zip(weights, side, strict=True))
        for side in (first, second)
    ]
    if min(len(samples) for side in (first, second) for samples in side) < _LEAST_RESAMPLED:
        return Interval(sides[0] / sides[1], 0.0, math.inf)
    random = np.random.default_rng(seed)
    drawn = [np.zeros(_RESAMPLES), np.zeros(_RESAMPLES)]
    for total, side in zip(drawn, (first, second), strict=True):
        for weight, samples in zip(weights, side, strict=True):
            values = np.asarray(samples, dtype=np.float64)
            draws = random.integers(0, len(values), size=(_RESAMPLES, len(values)))
            total += weight * np.median(values[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn[0] / drawn[1], [tail, 1.0 - tail])
    return Interval(sides[0] / sides[1], float(low), float(high))


def _bootstrap(values: Floats, seed: int, confidence: float) -> Interval:
    draws = np.random.default_rng(seed).integers(0, len(values), size=(_RESAMPLES, len(values)))
    medians = np.median(values[draws], axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(medians, [tail, 1.0 - tail])
    return Interval(float(np.median(values)), float(low), float(high))


def _around(middle: float, found: Interval) -> Interval:
    """Uses the interval of a mean for a median, widened to contain it."""
    return Interval(middle, min(found.low, middle), max(found.high, middle))


def _student_of_logs(values: Floats, confidence: float) -> Interval:
    """Returns the geometric mean of at least two values. One end is infinite if they are many magnitudes apart."""
    found = _student(np.log(values), confidence)
    with np.errstate(over="ignore"):
        return Interval(*np.exp([found.estimate, found.low, found.high]).tolist())


def _student(values: Floats, confidence: float) -> Interval:
    """Returns the mean of at least two values, with Student's interval."""
    count = len(values)
    quantile = float(scipy.special.stdtrit(count - 1, (1.0 + confidence) / 2.0))
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    mean = float(values.mean())
    return Interval(mean, mean - half, mean + half)
