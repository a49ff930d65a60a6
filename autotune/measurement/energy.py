"""The energy of a run from the record of its meter, and whether it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.measurement.observation import Line, Observation
from autotune.power import (
    Baseline,
    Joules,
    Meter,
    Trace,
    baseline,
    checks,
    net_energy,
    resolution,
    samples,
    trace_of,
)

_WHEN = ("before", "after")
_SMALL = ("battery", "csv")
"""Meters of devices that draw far less than a kilowatt."""


@dataclass(frozen=True)
class Energy:
    """A meter's result for a run.

    Attributes:
        joules: Joules above idle for the whole window; None if the meter gives none.
        marks: Reasons to doubt it, or the reason why there is none.
        rails: Joules above idle of each rail, for a meter with several rails.
    """

    joules: Joules | None
    marks: tuple[str, ...] = ()
    rails: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EnergyWindows:
    """Records before, during and after a run.

    Attributes:
        before: The idle device.
        run: The workload.
        after: The idle device.
        settle_s: Seconds to ignore at the start of each idle window, because a gauge shows a mean of the past.
        start: Beginning of the part of the run that counts.
        end: Its end.
        interval_s: Intended seconds between samples.
    """

    before: Observation
    run: Observation
    after: Observation
    settle_s: float
    start: float
    end: float
    interval_s: float


def power(meter: Meter, observed: Observation) -> Trace:
    """Returns power over the time of a record, in the device's monotonic time.

    Raises:
        ValueError: The meter is not calibrated, or its times are not in order.
    """
    if meter.printed:
        return trace_of(meter, *samples(meter, [(m.time_s, m.text) for m in observed.meter]))
    return trace_of(
        meter,
        [sample.time_s for sample in observed.samples],
        [dict(sample.texts) for sample in observed.samples],
    )


def idle_power(meter: Meter, observed: Observation, settle_s: float) -> Trace:
    """Returns the power of an idle device without the first `settle_s` seconds; see `power`.

    They are left out because a gauge shows a mean of the past.
    """
    return power(meter, observed).between(observed.begin_s + settle_s, math.inf)


def energy(meter: Meter, windows: EnergyWindows) -> Energy:
    """Returns the joules of a run above idle, their uncertainty, and problems with them."""
    observed, window = windows.run, (windows.start, windows.end)
    every = (windows.before, observed, windows.after)
    statuses = [t for o in every for file in meter.status_files for _, t in o.series(file)]
    if charging := checks.charging(statuses):
        return Energy(None, (charging,))
    said = _said([line for o in every for line in o.meter_errors])
    trace, idle = power(meter, observed), _idle(meter, windows)
    interval_s = _usual_s(trace, windows.interval_s) if meter.printed else windows.interval_s
    try:
        joules, base = _joules(meter, windows)
    except ValueError as error:
        return Energy(None, (str(error), *said))
    busy_w = float(np.median(np.abs(trace.between(*window).watts)))

    def absurd(part: Trace, start: float, end: float) -> str:
        return checks.spikes(part, start, end, checks.ABSURD_FACTOR, busy_w)

    lost = checks.gaps(trace, *window, interval_s)
    # Another program's output may end at any time, without an error.
    gone = meter.printed and lost and (checks.bursts(trace, *window) or lost)
    worthless = (
        checks.stuck(trace, *window, idle)
        or gone
        or absurd(trace, *window)
        or next(iter(_in_idle(idle, windows, absurd)), "")
        or checks.not_above_idle(joules, base.watts)
    )
    if worthless:
        return Energy(None, (worthless, *said))
    marks = [*said, *_one_sided(idle)]
    if back := len(trace.between(*window).resets_s):
        marks.append(f"the counter went back ({back} times): those intervals are left out")
    for channel in meter.channels:
        if channel.kind == "usb":
            amperes = [float(t) * 1e-6 for _, t in observed.series(channel.files[0])]
            if cut := checks.saturated(np.asarray(amperes)):
                marks.append(cut)
    if meter.name in _SMALL and (much := checks.too_much(trace, *window)):
        marks.append(much + (" give a header seconds,milliwatts" if meter.source else ""))
    if odd := checks.spikes(trace, *window):
        marks.append(odd)
    if lost:
        marks.append(lost)
    elif still := checks.frozen(trace, *window):
        marks.append(still)
    marks += _in_idle(idle, windows, lambda t, a, b: checks.gaps(t, a, b, interval_s))
    if flat := checks.one_value(trace, *window) or checks.too_few(trace, *window):
        marks.append(flat)
    rails = {c.name: _joules(replace(meter, channels=(c,)), windows)[0].joules for c in meter.rails}
    return Energy(joules, tuple(marks), rails)


def _in_idle(
    idle: tuple[Trace, Trace], windows: EnergyWindows, check: Callable[[Trace, float, float], str]
) -> list[str]:
    """Returns the findings of a check for those idle windows that are not empty."""
    found = []
    for trace, observed, when in zip(idle, (windows.before, windows.after), _WHEN, strict=True):
        if not len(trace.times_s):
            continue
        end = observed.end_s if observed.end_s is not None else float(trace.times_s[-1])
        if said := check(trace, observed.begin_s + windows.settle_s, end):
            found.append(f"idle {when} the run: {said}")
    return found


def _one_sided(idle: tuple[Trace, Trace]) -> list[str]:
    return [
        f"no sample in the idle window {when} the run: the baseline rests on one window"
        for trace, when in zip(idle, _WHEN, strict=True)
        if not len(trace.watts)
    ]


def _joules(meter: Meter, windows: EnergyWindows) -> tuple[Joules, Baseline]:
    trace, idle = power(meter, windows.run), _idle(meter, windows)
    step_w = resolution([trace, *idle])
    base = baseline(*idle, step_w)
    found = net_energy(trace, windows.start, windows.end, base, step_w)
    off = windows.run.clock_deviation_s
    if not off:
        return found, base
    # The trace may be shifted by this much in either direction.
    shifted = [
        net_energy(trace, windows.start + by, windows.end + by, base, step_w).joules
        for by in (-off, off)
    ]
    doubt = max(abs(joules - found.joules) for joules in shifted)
    return replace(found, deviation=math.hypot(found.deviation, doubt)), base


def _idle(meter: Meter, windows: EnergyWindows) -> tuple[Trace, Trace]:
    """Returns the power of the idle device, before and after."""
    return (
        idle_power(meter, windows.before, windows.settle_s),
        idle_power(meter, windows.after, windows.settle_s),
    )


def _usual_s(trace: Trace, least_s: float) -> float:
    """Returns the usual seconds between values when another program sets their pace."""
    if len(trace.times_s) < 2:
        return least_s
    return max(least_s, float(np.median(np.diff(trace.times_s))))


def _said(lines: list[Line]) -> tuple[str, ...]:
    if not lines:
        return ()
    more = f" ({len(lines)} such lines)" if len(lines) > 1 else ""
    return (f"the meter: {lines[-1].text}{more}",)
