"""Power over time, and energy as its integral above idle power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.power.channels import Channel, Meter

Floats = NDArray[np.float64]
_LARGEST_STEP_W, _SMALLEST_STEP_W = 1.0, 1e-6
_FEWEST_CORRELATED = 8
_FLAT_SHARE = 0.01

_UNSEEN_SHARE = 0.5
"""Assumed change of idle power, as a share of it, if only one side of the work was recorded. A device that has
worked
is warm, and its clocks come down late.
"""

_PLAUSIBLE, _FEWEST_OTHERS = 50.0, 3
"""A counter that went back has wrapped, if this gives at most this many times the median of the other powers."""


@dataclass(frozen=True)
class Trace:
    """Power over time.

    Attributes:
        times_s: When each value was read, ascending, shape (n,).
        watts: Mean power since the previous value (a gauge's own average, or a counter's difference), shape (n,).
        resets_s: When a counter was found to have restarted. The interval before has no value.
    """

    times_s: Floats
    watts: Floats
    resets_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.times_s.shape != self.watts.shape or (np.diff(self.times_s) < 0).any():
            raise ValueError("a trace has a value for each of its rising times")

    def between(self, start: float, end: float) -> Trace:
        """Values that were read within a window."""
        inside = (self.times_s > start) & (self.times_s <= end)
        resets = tuple(t for t in self.resets_s if start < t <= end)
        return Trace(self.times_s[inside], self.watts[inside], resets)

    @property
    def updates(self) -> int:
        """How many values differ from the previous one, which is the number of updates by the meter."""
        return int((np.diff(self.watts) != 0).sum()) + min(len(self.watts), 1)


@dataclass(frozen=True)
class Joules:
    """An energy with its standard uncertainty.

    Attributes:
        joules: The energy.
        deviation: Standard uncertainty in joules, from the spread of the values and of the baseline.
        seconds: Length of the window.
        updates: Number of new meter values that it is based on.
    """

    joules: float
    deviation: float
    seconds: float
    updates: int

    @property
    def watts(self) -> float:
        """Mean power."""
        return self.joules / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Baseline:
    """Power of the idle device.

    Attributes:
        watts: Mean.
        deviation: Standard uncertainty of the mean, including the change from before to after.
    """

    watts: float
    deviation: float


def trace_of(
    meter: Meter, times_s: Sequence[float], samples: Sequence[dict[str, str | None]]
) -> Trace:
    """Adds up the meter's channels over samples of their files. A sample that lacks a file is left out.

    An interval is left out too if a counter went back without a known wrap, as after a restart of its driver.

    Raises:
        ValueError: A channel is not calibrated.
    """
    if any(not channel.calibrated for channel in meter.channels):
        raise ValueError(f"the meter {meter.name} is not calibrated")
    rows = [[channel.value(texts) for channel in meter.channels] for texts in samples]
    kept = [i for i, row in enumerate(rows) if all(value is not None for value in row)]
    times = np.asarray([times_s[i] for i in kept], np.float64)
    values = np.asarray([rows[i] for i in kept], np.float64).reshape(len(kept), len(meter.channels))
    counters = [c.quantity == "joules" for c in meter.channels]
    if not any(counters):
        return Trace(times, values.sum(axis=1))
    total = np.zeros(max(0, len(kept) - 1))
    for index, channel in enumerate(meter.channels):
        total += _watts(channel, times, values[:, index])
    known = np.isfinite(total)
    return Trace(times[1:][known], total[known], tuple(times[1:][~known].tolist()))


def _watts(channel: Channel, times: Floats, values: Floats) -> Floats:
    """Returns the power of each interval; NaN if a counter restarted."""
    if channel.quantity == "watts":
        return values[1:]
    lengths = np.maximum(np.diff(times), 1e-9)
    watts = np.diff(values) / lengths
    back = watts < 0
    if channel.wrap_j is None:
        return np.where(back, np.nan, watts)
    wrapped = watts + channel.wrap_j / lengths
    others = watts[~back]
    # Too few other values do not show what is plausible.
    most = _PLAUSIBLE * float(np.median(others)) if len(others) >= _FEWEST_OTHERS else math.inf
    return np.where(back, np.where((wrapped < 0) | (wrapped > most), np.nan, wrapped), watts)


def resolution(traces: Sequence[Trace]) -> float:
    """Returns the meter's apparent step: the largest power of ten, in watts, that all values are multiples of."""
    values = np.concatenate([trace.watts for trace in traces])
    step = _LARGEST_STEP_W
    while step > _SMALLEST_STEP_W and (np.abs(values / step - np.rint(values / step)) > 1e-6).any():
        step /= 10
    return step


def baseline(before: Trace, after: Trace | None = None, step_w: float = 0.0) -> Baseline:
    """Returns idle power from windows before and after the work.

    If one of them is missing or has no value, the change of the baseline is unknown. It is assumed to be half of
    the baseline.

    Args:
        before: The idle device before the work.
        after: The idle device after it.
        step_w: The meter's resolution.

    Raises:
        ValueError: There is no value.
    """
    parts = [t for t in (before, after) if t is not None and len(t.watts)]
    if not parts:
        raise ValueError("no value of an idle device")
    means = [float(part.watts.mean()) for part in parts]
    spread = [_mean_deviation(part, step_w) for part in parts]
    mean = float(np.mean(means))
    # The difference between the two means shows how far the baseline moves.
    moved = abs(means[0] - means[1]) if len(means) > 1 else _UNSEEN_SHARE * abs(mean)
    drift = moved / math.sqrt(12)
    return Baseline(mean, math.hypot(drift, math.sqrt(sum(s * s for s in spread)) / len(spread)))


def net_energy(
    trace: Trace, start: float, end: float, idle: Baseline, step_w: float = 0.0
) -> Joules:
    """Returns energy above idle within a window: the sum of interval times (power - baseline), with real intervals.

    A value holds for the interval that ends when it was read. The last one also holds for the rest of the window.
    (EMDL'21 and the TX2 paper sum intervals in the same way.)

    Raises:
        ValueError: The window is empty, or no value falls into it.
    """
    inside = trace.between(start, end)
    if end <= start or not len(inside.watts):
        raise ValueError("no value of the meter falls into the window")
    edges = np.concatenate([[start], inside.times_s])
    lengths = np.diff(edges)
    lengths[-1] += end - edges[-1]
    seconds = end - start
    joules = float((lengths * (inside.watts - idle.watts)).sum())
    noise = _mean_deviation(inside, step_w) * seconds
    return Joules(joules, math.hypot(noise, idle.deviation * seconds), seconds, inside.updates)


def _mean_deviation(trace: Trace, step_w: float) -> float:
    """Returns the standard uncertainty of a trace's mean.

    Repeated values, or those like their neighbours, count for less.

    For a constant value, it is that of rounding to the meter's step, combined with a hundredth of the value. Shunts
    and their monitors have about that error, and no spread shows it.
    """
    count = trace.updates
    if not count:
        return math.inf
    if count < 2:
        return math.hypot(step_w / math.sqrt(12), _FLAT_SHARE * float(trace.watts.mean()))
    alike = max(together(trace.watts), len(trace.watts) / count)
    return float(trace.watts.std(ddof=1)) * math.sqrt(alike / len(trace.watts))


def together(values: Floats) -> float:
    """Returns the number of successive values that carry as much information as one independent value.

    This is the integrated autocorrelation time, at least 1. The sum of autocorrelations ends when two in a row are
    below zero together (Geyer, Stat. Science 7, 1992).
    """
    count = len(values)
    away = values - values.mean()
    power = float(away @ away)
    if count < _FEWEST_CORRELATED or power <= 0:
        return 1.0
    size = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(away, size)
    correlation = np.fft.irfft(spectrum * np.conj(spectrum), size)[:count] / power
    pairs = correlation[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs < 0)
    kept = pairs[: ends[0]] if len(ends) else pairs
    return min(float(count), max(1.0, 2.0 * float(kept.sum()) - 1.0))
