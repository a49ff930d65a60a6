"""What makes an energy worthless, or doubtful, and why."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.power.trace import Floats, Joules, Trace

CHARGING = "the battery was charging"
PORT_LIMITS_A = (0.1, 0.5, 0.9, 1.5, 2.0, 3.0)
"""Currents that a USB port gives at most (USB 2.0, 3.0, Battery Charging 1.2, Type-C)."""
_BELOW_LIMIT = 0.06
"""A meter stands a little below its port's limit: the paper's at 484 mA of 500 mA."""
_NEAR = 0.01
_SATURATED_SHARE = 0.9
_FEWEST_UPDATES = 5
_GAP_FACTOR = 3.0
_FROZEN_SHARE = 0.3
_FROZEN_FACTOR = 5.0
_SPIKE_FACTOR = 20.0
ABSURD_FACTOR = 100.0
"""No device's power goes so far above its median while one workload runs: such a reading is none."""
_MOST_W = 1000.0
"""What runs from a battery, or is a small board on a meter of its own, draws less."""
_FINE_SHARE = 0.5
"""New values that are not seen twice: of a fine meter nearly all, of a coarse one few."""


def saturated(amperes: Floats) -> str:
    """Why a supply's current looks cut off; empty where it does not.

    In the paper's published traces the meter stood at a 500 mA port's limit in 99 to 100 % of the samples with four
    big cores, so that energy is a constant times the duration.

    Args:
        amperes: Current of a USB supply while work goes on, shape (n,).
    """
    if len(amperes) < _FEWEST_UPDATES:
        return ""
    level = float(np.median(amperes))
    limit = next((a for a in PORT_LIMITS_A if a * (1 - _BELOW_LIMIT) <= level <= a * 1.02), None)
    if limit is None:
        return ""
    share = float((np.abs(amperes - level) <= _NEAR * level).mean())
    if share < _SATURATED_SHARE:
        return ""
    return (
        f"{share:.0%} of the samples stand at {1000 * level:.0f} mA, the limit of a {1000 * limit:.0f} mA port: "
        "the meter is saturated"
    )


def one_ceiling(watts: Sequence[float]) -> str:
    """Why the powers of several configurations look cut off at one value; empty where they do not.

    Args:
        watts: Mean power of configurations that differ in cores or clocks, above idle or not.
    """
    values = np.sort(np.asarray(watts, np.float64))[::-1]
    if len(values) < 4:
        return ""
    top = int((values >= values[0] * (1 - _NEAR / 2)).sum())
    if top < max(4, len(values) // 4):
        return ""
    return (
        f"{top} of {len(values)} configurations draw {values[0]:.2f} W to within 0.5 %: "
        "the meter may be saturated"
    )


def charging(statuses: Sequence[str | None]) -> str:
    """Why a battery's figures do not tell what the device draws; empty where they do.

    Args:
        statuses: While the workload ran, and while the device was idle.
    """
    seen = {s.strip() for s in statuses if s}
    if "Charging" in seen:
        return CHARGING
    return ""


def too_few(trace: Trace, start: float, end: float) -> str:
    """Why the new values of a window are too few; empty where they are not."""
    updates = trace.between(start, end).updates
    if updates >= _FEWEST_UPDATES:
        return ""
    return (
        f"the meter had {updates} new values in {end - start:.1f} s, "
        f"at least {_FEWEST_UPDATES} are needed"
    )


def gaps(trace: Trace, start: float, end: float, interval_s: float) -> str:
    """Why too much of a window has no sample; empty where enough has.

    Args:
        trace: The meter's.
        start: Beginning of the window.
        end: Its end.
        interval_s: How often was to be sampled.
    """
    lengths = np.diff(np.concatenate([[start], trace.between(start, end).times_s, [end]]))
    lost = float(lengths[lengths > _GAP_FACTOR * interval_s].sum())
    return f"no sample for {lost:.1f} of {end - start:.1f} s" if lost > 0.1 * (end - start) else ""


def bursts(trace: Trace, start: float, end: float) -> str:
    """Why samples of a window have no times of their own; empty where they have.

    Lines without stamps that another program holds back arrive together, and would all be of one moment.
    """
    times = trace.between(start, end).times_s
    moments = len(np.unique(times))
    if moments > len(times) / 2:
        return ""
    return (
        f"{len(times)} samples are of {moments} moments: lines without times must come one by one, "
        "and times must differ"
    )


def spikes(
    trace: Trace, start: float, end: float, factor: float = _SPIKE_FACTOR, least_w: float = 0.0
) -> str:
    """Why single samples of a window look wrong; empty where they do not.

    Args:
        trace: The meter's.
        start: Beginning of the window.
        end: Its end.
        factor: How many times the median is too much.
        least_w: Taken for the median where that is less: an idle phone draws milliwatts, and wakes up.
    """
    watts = np.abs(trace.between(start, end).watts)
    usual = max(least_w, float(np.median(watts)) if len(watts) else 0.0)
    above = watts[watts >= factor * usual] if usual else watts[:0]
    if not len(above):
        return ""
    return (
        f"{len(above)} of {len(watts)} samples are {factor:.0f} times the median of {usual:.3g} W or more, "
        f"up to {above.max():.3g} W"
    )


def not_above_idle(joules: Joules, idle_w: float) -> str:
    """Why joules above idle say nothing; empty where they are above their uncertainty.

    Args:
        joules: Of the workload, above idle.
        idle_w: Power of the idle device.
    """
    if joules.joules > joules.deviation:
        return ""
    if joules.joules >= -joules.deviation:
        return (
            f"the meter cannot tell the workload from the idle device: {joules.joules:.3g} J above it, "
            f"with an uncertainty of {joules.deviation:.2g} J"
        )
    return (
        f"the meter reads less while the workload runs ({idle_w + joules.watts:.3g} W) than when idle "
        f"({idle_w:.3g} W): is its sign turned?"
    )


def too_much(trace: Trace, start: float, end: float) -> str:
    """Why a window's power is hardly in watts; empty where it may be. Of a battery, or of a meter's stream."""
    watts = trace.between(start, end).watts
    usual = float(np.median(watts)) if len(watts) else 0.0
    return f"{usual:.0f} W: are these milliwatts?" if usual > _MOST_W else ""


def frozen(trace: Trace, start: float, end: float) -> str:
    """Why a meter looks frozen for a part of a window; empty where it does not.

    One value for long is usual of a coarse meter under a steady load, so only a fine one can be judged.

    Args:
        trace: The meter's.
        start: Beginning of the window.
        end: Its end.
    """
    inside = trace.between(start, end)
    changed = np.flatnonzero(np.diff(inside.watts) != 0) + 1
    if len(np.unique(inside.watts)) < max(_FEWEST_UPDATES + 1, _FINE_SHARE * len(changed)):
        return ""
    lengths = np.diff(np.concatenate([[start], inside.times_s[changed], [end]]))
    longest, usual = float(lengths.max()), float(np.median(lengths))
    if longest < max(_FROZEN_SHARE * (end - start), _FROZEN_FACTOR * usual):
        return ""
    return (
        f"no new value for {longest:.1f} of {end - start:.1f} s, where one comes every {usual:.2g} s: "
        "the meter froze"
    )


def stuck(trace: Trace, start: float, end: float, idle: Sequence[Trace] = ()) -> str:
    """Why a meter looks stuck: it shows one value in a window, and idle as well; empty where it does not.

    Args:
        trace: The meter's.
        start: Beginning of the window.
        end: Its end.
        idle: What it showed of the idle device; where there is nothing, one value is enough.
    """
    shown = _constant(trace.between(start, end))
    if shown is None or (idle and all(part.watts[-1:] != [shown] for part in idle)):
        return ""
    return (
        f"all {len(trace.between(start, end).watts)} samples are {shown:.3f} W: the meter is stuck"
    )


def one_value(trace: Trace, start: float, end: float) -> str:
    """Why a meter that is not stuck is doubtful: it shows one value in a window, as where it is cut off."""
    shown = _constant(trace.between(start, end))
    return (
        "" if shown is None else f"all samples are {shown:.3f} W: the meter is coarse, or saturated"
    )


def _constant(trace: Trace) -> float | None:
    """The one value of a trace; None where it moves, or is short."""
    if len(trace.watts) < 2 * _FEWEST_UPDATES or np.ptp(trace.watts) != 0:
        return None
    return float(trace.watts[0])
