"""The profile of a step: time, power and use of the cores for each call, joined with samples by their times.

A sample of a meter is the mean over an interval in which several calls ran. Over many steps the intervals overlap
the calls in different ways, so the power of each call is found by least squares: the mean of interval k is the sum
over calls of (share of k that the call took) x (power of the call). Calls that the samples cannot tell apart keep
the step's mean power, with a matching uncertainty: a normal prior, as in ridge regression (Hoerl and Kennard,
1970). The TX2 paper joins samples of 10 ms with operators' times in the same way, without the shares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from autotune.devices import DeviceInfo, ThermalZone, celsius
from autotune.measurement.energy import idle_power, power
from autotune.measurement.observation import Observation
from autotune.power import Meter, Trace, baseline, resolution

CALLS, NAMES, GPU, STEP = "calls", "names", "gpu", "step"
"""First words of the lines that a program prints about its calls; docs/measurement.md describes them."""
PROC_STAT, PROC_STATUS = "/proc/stat", "/proc/%p/status"
_PRIOR_SHARE = 0.5
"""Prior standard deviation of calls' power around the step's mean, as a share of the mean."""
APART_SHARE = 0.15
"""A call is told apart if the standard deviation of its power is within this share of the step's power."""
_USER_HZ = 100
_PASSES = 3
_ALWAYS_NEW = 0.7
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Calls:
    """Start times of the calls of some steps.

    Attributes:
        times_s: Beginning of each call and end of the last one, in the device's monotonic time; (steps, calls + 1).
        names: Names of the calls, if the program has reported them; else empty.
        gpu: The GPU's part in the calls; None if the program reported none.
        repeats: Number of equal consecutive steps that each row stands for, from its beginning, (steps,); None if
            every step is reported.
    """

    times_s: Floats
    names: tuple[str, ...] = ()
    gpu: GpuCalls | None = None
    repeats: Floats | None = None

    @property
    def seconds(self) -> Floats:
        """Duration of each call, (steps, calls)."""
        return np.diff(self.times_s, axis=1)

    @property
    def cpu_seconds(self) -> Floats:
        """CPU time of each call, without its wait before it began, (steps, calls)."""
        if self.gpu is None:
            return self.seconds
        return self.seconds - (self.gpu.waited_s + self.gpu.crossed_s)[:, :-1]


@dataclass(frozen=True)
class GpuCalls:
    """A GPU's part in the calls of some steps. Each array has the shape (steps, calls + 1), in seconds.

    The last entry is the time after the last call.

    Attributes:
        ran_s: Time for the calls that the GPU made.
        waited_s: Time that other calls waited for the GPU before they began.
        copied_s, mapped_s, reordered_s: Time to bring tensors there or back before a call began: by copies, by
            mapping and unmapping, and by changes of their layout.
    """

    ran_s: Floats
    waited_s: Floats
    copied_s: Floats
    mapped_s: Floats
    reordered_s: Floats

    @property
    def crossed_s(self) -> Floats:
        """Total time of tensors to get there or back."""
        return self.copied_s + self.mapped_s + self.reordered_s

    @property
    def step_s(self) -> dict[str, float]:
        """Waiting and crossing times of a step, by those names: medians of each call, summed."""
        return {
            name: float(np.median(seconds, axis=0).sum())
            for name, seconds in vars(self).items()
            if name != "ran_s"
        }


def calls_of(observed: Observation, start_s: float, end_s: float) -> Calls | None:
    """Returns calls of the steps within a window, from the lines that the program printed; None if there are none.

    Raises:
        ValueError: Steps have different numbers of calls.
    """
    rows: list[list[float]] = []
    repeats: list[int] = []
    before = -1  # Steps up to the previous step's line.
    last: list[float] = []
    shared: dict[int, list[str]] = {}
    names: tuple[str, ...] = ()
    within = False
    for line in observed.lines:
        kind, *words = line.text.split()[:1] or [""]
        if kind == NAMES:
            names = tuple(line.text.split()[1:])
        elif kind == CALLS:
            words = line.text.split()[1:]
            edges = float(words[0]) + np.concatenate(
                [[0.0], np.cumsum(np.asarray(words[1:], np.float64) * 1e-6)]
            )
            last = edges.tolist()
            within = bool(edges[0] >= start_s - 1e-3 and edges[-1] <= end_s + 1e-3)
            if within:
                rows.append(last)
                repeats.append(1)
        elif kind == GPU and within:
            shared[len(rows) - 1] = line.text.split()[1:]
        elif kind == STEP and (number := line.text.split()[1:2]) and number[0].isdecimal():
            if within and before >= 0:
                repeats[-1] = several = max(1, int(number[0]) - before)
                if several > 1 and last[0] + several * (last[-1] - last[0]) > end_s + 1e-3:
                    rows.pop()
                    repeats.pop()
            before, within = int(number[0]), False
    if not rows:
        return None
    if len({len(row) for row in rows}) > 1:
        raise ValueError("steps have different numbers of calls")
    if names and len(names) != len(rows[0]) - 1:
        raise ValueError(f"{len(names)} names were given for {len(rows[0]) - 1} calls")
    times = np.asarray(rows, np.float64)
    bursts = np.asarray(repeats, np.float64) if max(repeats) > 1 else None
    return Calls(times, names, _gpu_calls(shared, times) if shared else None, bursts)


def _gpu_calls(names: Mapping[int, Sequence[str]], times: Floats) -> GpuCalls:
    """Parses words such as `3:120.5:0.0:61.2:0.0:5.1` for each step: a call, and microseconds as in `GpuCalls`."""
    found = np.zeros((len(fields(GpuCalls)), *times.shape))
    for step, words in names.items():
        for word in words:
            call, *figures = word.split(":")
            found[:, step, int(call)] = np.asarray(figures, np.float64) * 1e-6
    return GpuCalls(*found)


def shares(edges_s: Floats, calls: Calls) -> Floats:
    """Returns the share of each interval that each call took, and the share between steps.

    Args:
        edges_s: Edges of n intervals, ascending, shape (n + 1,).
        calls: Calls of the steps.

    Returns:
        Shape (n, calls + 1). A row adds up to less than 1 if the interval reaches beyond the steps.
    """
    count = calls.times_s.shape[1] - 1
    if calls.repeats is not None:
        return _shares_of_repeated(edges_s, calls, calls.repeats)
    bounds = calls.times_s.reshape(-1)
    # The time between steps follows the last call of a step.
    label = np.tile(np.arange(count + 1), len(calls.times_s))[:-1]
    cuts = np.union1d(edges_s, bounds)
    inside = (cuts >= max(edges_s[0], bounds[0])) & (cuts <= min(edges_s[-1], bounds[-1]))
    cuts = cuts[inside]
    found = np.zeros((len(edges_s) - 1, count + 1))
    if len(cuts) < 2:
        return found
    middles = (cuts[:-1] + cuts[1:]) / 2
    rows = np.clip(np.searchsorted(edges_s, middles, side="right") - 1, 0, len(found) - 1)
    columns = label[np.clip(np.searchsorted(bounds, middles, side="right") - 1, 0, len(label) - 1)]
    np.add.at(found, (rows, columns), np.diff(cuts))
    return np.asarray(found / np.maximum(np.diff(edges_s), 1e-12)[:, None])


def _shares_of_repeated(edges_s: Floats, calls: Calls, repeats: Floats) -> Floats:
    """Computes shares for many short steps, in which each call has the same share of any interval; see `shares`."""
    start, step_s = calls.times_s[:, 0], calls.times_s[:, -1] - calls.times_s[:, 0]
    ends = start + repeats * step_s
    low = np.maximum(edges_s[:-1, None], start)
    within = np.maximum(np.minimum(edges_s[1:, None], ends) - low, 0.0)
    found = np.zeros((len(edges_s) - 1, calls.times_s.shape[1]))
    found[:, :-1] = within @ (calls.seconds / step_s[:, None])
    # Between the reported steps.
    gaps = np.minimum(edges_s[1:, None], start[1:]) - np.maximum(edges_s[:-1, None], ends[:-1])
    found[:, -1] = np.maximum(gaps, 0.0).sum(axis=1)
    return np.asarray(found / np.maximum(np.diff(edges_s), 1e-12)[:, None])


@dataclass(frozen=True)
class Attribution:
    """A figure of each call, found from the means over intervals.

    Attributes:
        mean: Mean of the whole.
        intervals: Number of intervals used.
        values: Figure of each call, shape (calls + 1,); the last is for the time between steps.
        covariance: Covariance of the values, (calls + 1, calls + 1).
    """

    mean: float
    intervals: int
    values: Floats
    covariance: Floats

    def total(self, weights: Floats) -> tuple[float, float]:
        """Returns a weighted sum of the values, and its standard deviation."""
        return float(weights @ self.values), math.sqrt(
            max(0.0, float(weights @ self.covariance @ weights))
        )


def attribute(part: Floats, means: Floats) -> Attribution:
    """Finds the figure of each call from the means over intervals.

    Args:
        part: Shares, (n, calls + 1), of intervals that lie completely within the steps.
        means: Mean of each interval, (n,).

    Raises:
        ValueError: There is no interval.
    """
    if not len(means):
        raise ValueError("no interval lies within the steps")
    count = part.shape[1]
    whole = float(means.mean())
    prior = max(_PRIOR_SHARE * abs(whole), 1e-12)
    rest = means - part @ np.full(count, whole)
    noise = max(float(rest.var()), (1e-3 * prior) ** 2)
    gram, pulled = part.T @ part, part.T @ rest
    values: Floats = np.zeros(count)
    covariance: Floats = np.eye(count)
    for _ in range(_PASSES):
        covariance = np.asarray(np.linalg.inv(gram / noise + np.eye(count) / prior**2), np.float64)
        values = np.asarray(covariance @ pulled / noise, np.float64)
        left = rest - part @ values
        degrees = float(np.trace(covariance @ gram)) / noise
        noise = max(float(left @ left) / max(len(left) - degrees, 1.0), (1e-3 * prior) ** 2)
    return Attribution(whole, len(means), values + whole, covariance)


@dataclass(frozen=True)
class CallProfile:
    """A call of the step, or several together.

    Attributes:
        time_s: Median seconds in a step.
        energy_j: Joules above idle in a step; None without a meter.
        deviation_j: Its standard uncertainty, from the fit, the idle power, and a meter's own clock.
        apart: Whether the samples tell its power apart from its neighbours'.
        busy: Share of its time for which each core worked, by number; empty if unknown.
        khz: Mean clock of each cluster.
        celsius: Mean temperature.
        rss_bytes: Mean memory of the process; None if unknown.
    """

    time_s: float
    energy_j: float | None = None
    deviation_j: float | None = None
    apart: bool = False
    busy: dict[int, float] | None = None
    khz: dict[str, float] | None = None
    celsius: float | None = None
    rss_bytes: float | None = None


class StepProfile:
    """The calls of a step, and observations made while they ran.

    Args:
        calls: Calls of the steps that count.
        observed: The record of the run.
        info: The device.
        zone: The sensor whose temperature is reported; None for none.
        meter: The meter that gives energy; None to measure times only.
        idle: Records of the idle device, before and after.
        settle_s: Seconds to ignore at the start of each idle record.
    """

    def __init__(
        self,
        calls: Calls,
        observed: Observation,
        info: DeviceInfo,
        zone: ThermalZone | None,
        meter: Meter | None = None,
        idle: Sequence[Observation] = (),
        settle_s: float = 0.0,
    ) -> None:
        self.calls = calls
        self._observed, self._info, self._zone = observed, info, zone
        self._power: Attribution | None = None
        self._base_w = 0.0
        self._moved: list[Attribution] = []
        if meter is not None and idle:
            windows = [idle_power(meter, o, settle_s) for o in idle]
            trace = power(meter, observed)
            base = baseline(windows[0], windows[-1], resolution([trace, *windows]))
            self._base_w = base.deviation
            trace = _fresh(trace)
            means = trace.watts[1:] - base.watts
            self._power = self._attributed(trace.times_s, means)
            # The meter's times may be off by this much in either direction.
            off = observed.clock_deviation_s
            moved = [self._attributed(trace.times_s + by, means) for by in (-off, off) if off]
            self._moved = [found for found in moved if found is not None]
        self._busy = self._cores()
        times = np.asarray([s.time_s for s in observed.samples])
        self._sampled = shares(np.concatenate([times[:1], times]), calls) if len(times) else None

    def of(self, numbers: Sequence[int]) -> CallProfile:
        """Returns the combined profile of some calls, given by their numbers."""
        chosen = list(numbers)
        seconds = self.calls.seconds[:, chosen].sum(axis=1)
        weights = np.zeros(self.calls.seconds.shape[1] + 1)
        weights[chosen] = np.median(self.calls.seconds[:, chosen], axis=0)
        total = float(weights.sum())
        energy, deviation, apart = None, None, False
        if self._power is not None:
            energy, fitted = self._power.total(weights)
            apart = fitted <= APART_SHARE * abs(self._power.mean) * total
            off = [abs(moved.total(weights)[0] - energy) for moved in self._moved]
            deviation = math.hypot(fitted, self._base_w * total, max(off, default=0.0))
        return CallProfile(
            time_s=float(np.median(seconds)),
            energy_j=energy,
            deviation_j=deviation,
            apart=apart,
            busy={
                cpu: min(1.0, max(0.0, found.total(weights)[0] / total))
                for cpu, found in self._busy.items()
            }
            if total
            else {},
            khz={
                cluster.name: mean
                for cluster in self._info.clusters
                if cluster.policies
                and (mean := self._mean(f"{cluster.policies[0]}/scaling_cur_freq", chosen, float))
            },
            celsius=self._mean(f"{self._zone.path}/temp", chosen, lambda t: celsius(float(t)))
            if self._zone
            else None,
            rss_bytes=self._mean(self._status_path, chosen, _rss_bytes),
        )

    @property
    def step(self) -> CallProfile:
        """The profile of all calls together."""
        return self.of(range(self.calls.seconds.shape[1]))

    @property
    def intervals(self) -> int:
        """Intervals between new meter values, within steps, that the joules are based on."""
        return self._power.intervals if self._power else 0

    @property
    def _status_path(self) -> str:
        for sample in self._observed.samples[:1]:
            for path in sample.texts:
                if re.fullmatch(r"/proc/\d+/status", path):
                    return path
        return ""

    def _attributed(self, edges_s: Floats, means: Floats) -> Attribution | None:
        """Attributes a figure to the calls, given its means over the intervals between edges."""
        if len(edges_s) < 2:
            return None
        part = shares(edges_s, self.calls)
        whole = part.sum(axis=1) > 1 - 1e-6
        return attribute(part[whole], means[whole]) if whole.any() else None

    def _cores(self) -> dict[int, Attribution]:
        seen = self._observed.series(PROC_STAT)
        if len(seen) < 2:
            return {}
        times = np.asarray([time for time, _ in seen])
        worked = [_worked_s(text) for _, text in seen]
        found = {}
        for cpu in sorted(worked[0]):
            rows = np.asarray([row.get(cpu, math.nan) for row in worked])
            means = np.diff(rows) / np.maximum(np.diff(times), 1e-9)
            if np.isfinite(means).all() and (one := self._attributed(times, means)) is not None:
                found[cpu] = one
        return found

    def _mean(
        self, path: str, chosen: Sequence[int], read: Callable[[str], float | None]
    ) -> float | None:
        """Returns the mean of a file's samples, weighted by the calls' share of the time before each sample."""
        if self._sampled is None or not path:
            return None
        weights = self._sampled[:, list(chosen)].sum(axis=1)
        total = value = 0.0
        for weight, sample in zip(weights.tolist(), self._observed.samples, strict=True):
            text = sample.texts.get(path)
            number = read(text) if text and weight else None
            if number is not None:
                total += weight
                value += weight * number
        return value / total if total else None


def _fresh(trace: Trace) -> Trace:
    """Returns the meter's new values. Each is the mean since the previous one, at about the time when it appeared.

    If a meter updates less often than it is read, an update happened half an interval earlier on average.
    """
    if len(trace.watts) < 2:
        return trace
    new = np.concatenate([[True], np.diff(trace.watts) != 0])
    gaps = np.diff(trace.times_s, prepend=trace.times_s[0])
    late = gaps / 2 if new.mean() < _ALWAYS_NEW else np.zeros_like(gaps)
    return Trace((trace.times_s - late)[new], trace.watts[new])


def _worked_s(text: str) -> dict[int, float]:
    """Returns seconds of work by core, from /proc/stat (man 5 proc): all but idle and waiting for input."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"cpu(\d+) (.*)", line)
        if match:
            ticks = [int(word) for word in match[2].split()]
            found[int(match[1])] = (sum(ticks[:3]) + sum(ticks[5:8])) / _USER_HZ
    return found


def _rss_bytes(text: str) -> float | None:
    match = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    return 1024.0 * int(match[1]) if match else None
