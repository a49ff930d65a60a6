"""Statistics of paired, interleaved timings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]
_RESAMPLES = 2000
_LEAST_RESAMPLED = 8
"""Resampled medians of fewer values lie within their smallest and largest, which cover too little."""


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval, both ends included."""

    estimate: float
    low: float
    high: float

    @property
    def ends(self) -> list[float] | None:
        """Both ends; None where nothing is known of them."""
        return [self.low, self.high] if math.isfinite(self.low + self.high) else None


def median(samples: Sequence[float]) -> float:
    """Median of the samples, in their unit."""
    return float(np.median(np.asarray(samples, dtype=np.float64)))


def paired_speedup(
    baseline: Sequence[float], challenger: Sequence[float], *, seed: int, confidence: float = 0.95
) -> Interval:
    """Speed-up of a challenger over a baseline measured in the same blocks.

    Pairs the i-th block of both, so that drift which both share cancels; the estimate is the median of
    the block ratios and its interval a percentile bootstrap over blocks (Efron and Tibshirani, 1993).
    Of fewer than eight blocks no bootstrap covers what it says: there it is Student's, of the ratios' logarithms.

    Args:
        baseline: Seconds a block, above zero.
        challenger: Seconds a block, of the same length.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Returns:
        The speed-up; of one block its interval is everything from 0 on.

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
    # Of an even number the geometric middle, so that either side over the other tells the same.
    return _around(float(np.exp(np.median(np.log(ratios)))), _student_of_logs(ratios, confidence))


def bootstrap_median(
    samples: Sequence[float], *, positive: bool, seed: int, confidence: float = 0.95
) -> Interval:
    """Median with a percentile bootstrap interval (Efron and Tibshirani, 1993); Student's of fewer than eight.

    Args:
        samples: Values, at least one; of one alone the interval is everything that they may be.
        positive: Whether they are above zero by their nature, as seconds and bytes are: Student's interval is then
            of their logarithms. Joules above idle are not: noise may take them below.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Raises:
        ValueError: There is no value, or one that is not above zero where all are.
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
    """The ratio of two weighted sums of medians that were not measured side by side.

    Each side's samples are resampled by themselves (percentile bootstrap): the interval has the noise within each
    side, and not what changed between them.

    Args:
        first: Samples of each term, at least one of each, above zero.
        second: The same of the other side, as many terms.
        weights: Of the terms.
        seed: Seed of the resampling.
        confidence: Coverage of the interval, between 0 and 1.

    Returns:
        First over second; where a term has fewer than eight samples the interval is everything from 0 on.

    Raises:
        ValueError: The sides differ in their terms, or have none.
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
    """An interval of a mean as one of a median, which lies within."""
    return Interval(middle, min(found.low, middle), max(found.high, middle))


def _student_of_logs(values: Floats, confidence: float) -> Interval:
    """Geometric mean of two values or more; one end is infinite where they are many magnitudes apart."""
    found = _student(np.log(values), confidence)
    with np.errstate(over="ignore"):
        return Interval(*np.exp([found.estimate, found.low, found.high]).tolist())


def _student(values: Floats, confidence: float) -> Interval:
    """Mean of two values or more."""
    count = len(values)
    quantile = float(stdtrit(count - 1, (1.0 + confidence) / 2.0))
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    mean = float(values.mean())
    return Interval(mean, mean - half, mean + half)
