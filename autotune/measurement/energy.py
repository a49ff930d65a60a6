"""The energy of a run from what was recorded of its meter, and whether it can be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.measurement.observation import Line, Observation
from autotune.power import checks
from autotune.power.channels import Meter
from autotune.power.printed import samples
from autotune.power.trace import Joules, Trace, baseline, net_energy, resolution, trace_of


@dataclass(frozen=True)
class Energy:
    """What a meter says of a run.

    Attributes:
        joules: Above idle, of the whole window; None where the meter says nothing.
        marks: What makes it doubtful, or why there is none.
        rails: Joules above idle of each rail, of a meter that has several.
    """

    joules: Joules | None
    marks: tuple[str, ...] = ()
    rails: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Windows:
    """What was recorded before, during and after a run.

    Attributes:
        before: The idle device.
        run: The workload.
        after: The idle device.
        settle_s: What does not count of each idle window: a gauge shows the mean of a time that has passed.
        start: Beginning of what counts of the run.
        end: Its end.
        interval_s: How often the device was to be sampled.
    """

    before: Observation
    run: Observation
    after: Observation
    settle_s: float
    start: float
    end: float
    interval_s: float


def power(meter: Meter, observed: Observation) -> Trace:
    """Power over the time of a record, in the device's monotonic time.

    Raises:
        ValueError: The meter is not calibrated, or its times are in no order.
    """
    if meter.printed:
        return trace_of(meter, *samples(meter, [(m.time_s, m.text) for m in observed.meter]))
    return trace_of(
        meter,
        [sample.time_s for sample in observed.samples],
        [dict(sample.texts) for sample in observed.samples],
    )


def idle_power(meter: Meter, observed: Observation, settle_s: float) -> Trace:
    """As `power`, of an idle device, without the first `settle_s` seconds: a gauge shows a time that has passed."""
    return power(meter, observed).between(observed.begin_s + settle_s, math.inf)


def energy(meter: Meter, windows: Windows) -> Energy:
    """The joules of a run above idle, their uncertainty, and what is wrong with them."""
    observed, window = windows.run, (windows.start, windows.end)
    statuses = [t for file in meter.status_files for _, t in observed.series(file)]
    if charging := checks.charging(statuses):
        return Energy(None, (charging,))
    said = _said(
        [*windows.before.meter_errors, *observed.meter_errors, *windows.after.meter_errors]
    )
    trace, idle = power(meter, observed), _idle(meter, windows)
    try:
        joules = _joules(meter, windows)
    except ValueError as error:
        return Energy(None, (str(error), *said))
    if stuck := checks.stuck(trace, *window, idle):
        return Energy(None, (stuck, *said))
    marks = list(said)
    if back := len(trace.between(*window).resets_s):
        marks.append(f"the counter went back ({back} times): those intervals are left out")
    for channel in meter.channels:
        if channel.kind == "usb":
            amperes = [float(t) * 1e-6 for _, t in observed.series(channel.files[0])]
            if cut := checks.saturated(np.asarray(amperes)):
                marks.append(cut)
    interval_s = _usual_s(trace, windows.interval_s) if meter.printed else windows.interval_s
    if lost := checks.gaps(trace, *window, interval_s):
        # What another program prints may end at any time: there is nobody who would have gone on.
        if meter.printed:
            return Energy(None, (lost, *said))
        marks.append(lost)
    elif still := checks.frozen(trace, *window):
        marks.append(still)
    if flat := checks.one_value(trace, *window) or checks.too_few(trace, *window):
        marks.append(flat)
    rails = {c.name: _joules(replace(meter, channels=(c,)), windows).joules for c in meter.rails}
    return Energy(joules, tuple(marks), rails)


def _joules(meter: Meter, windows: Windows) -> Joules:
    trace, idle = power(meter, windows.run), _idle(meter, windows)
    step_w = resolution([trace, *idle])
    base = baseline(*idle, step_w)
    found = net_energy(trace, windows.start, windows.end, base, step_w)
    off = windows.run.clock_deviation_s
    if not off:
        return found
    # The trace may lie so much earlier or later than it seems.
    shifted = [
        net_energy(trace, windows.start + by, windows.end + by, base, step_w).joules
        for by in (-off, off)
    ]
    doubt = max(abs(joules - found.joules) for joules in shifted)
    return replace(found, deviation=math.hypot(found.deviation, doubt))


def _idle(meter: Meter, windows: Windows) -> tuple[Trace, Trace]:
    """Power of the idle device, before and after."""
    return (
        idle_power(meter, windows.before, windows.settle_s),
        idle_power(meter, windows.after, windows.settle_s),
    )


def _usual_s(trace: Trace, least_s: float) -> float:
    """Seconds between values that come at the pace of another program."""
    if len(trace.times_s) < 2:
        return least_s
    return max(least_s, float(np.median(np.diff(trace.times_s))))


def _said(lines: list[Line]) -> tuple[str, ...]:
    if not lines:
        return ()
    more = f" ({len(lines)} such lines)" if len(lines) > 1 else ""
    return (f"the meter: {lines[-1].text}{more}",)
