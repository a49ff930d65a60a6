"""Checks for energies that are worthless or doubtful, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.power.trace import Floats, Joules, Trace

CHARGING = "the battery was charging"
PORT_LIMITS_A = (0.1, 0.5, 0.9, 1.5, 2.0, 3.0)
"""Highest currents of USB ports (USB 2.0, 3.0, Battery Charging 1.2, Type-C)."""
_BELOW_LIMIT = 0.06
"""A limited meter stays a little below its port's limit: the paper's at 484 mA of 500 mA."""
_NEAR = 0.01
_SATURATED_SHARE = 0.9
_FEWEST_UPDATES = 5
_GAP_FACTOR = 3.0
_FROZEN_SHARE = 0.3
_FROZEN_FACTOR = 5.0
_SPIKE_FACTOR = 20.0
ABSURD_FACTOR = 100.0
"""A reading this far above the median of one workload is wrong: no device's power varies so much."""
_MOST_W = 1000.0
"""Most watts of a device with a battery, or of a small board with its own meter."""
_FINE_SHARE = 0.5
"""Least share of distinct values among new ones of a fine meter: nearly all differ, of a coarse meter few."""


def saturated(amperes: Floats) -> str:
    """Explains why a supply's current looks cut off; empty if it does not.

    In the paper's published traces with four big cores, the meter stood at a 500 mA port's limit in 99 to 100 % of
    the samples. Energy is then a constant times the duration.

    Args:
        amperes: Current of a USB supply during work, shape (n,).
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
    """Explains why the powers of several configurations look cut off at one value; empty if they do not.

    Args:
        watts: Mean power of configurations with different cores or clocks, above idle or not.
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
    """Explains why a battery's figures do not show the device's power; empty if they do.

    Args:
        statuses: Statuses during the workload and while the device was idle.
    """
    seen = {s.strip() for s in statuses if s}
    if "Charging" in seen:
        return CHARGING
    return ""


def too_few(trace: Trace, start: float, end: float) -> str:
    """Explains why a window has too few new values; empty if it has enough."""
    updates = trace.between(start, end).updates
    if updates >= _FEWEST_UPDATES:
        return ""
    return (
        f"the meter had {updates} new values in {end - start:.1f} s, "
        f"at least {_FEWEST_UPDATES} are needed"
    )


def gaps(trace: Trace, start: float, end: float, interval_s: float) -> str:
    """Explains why too much of a window has no sample; empty if enough has.

    Args:
        trace: The meter's trace.
        start: Beginning of the window.
        end: Its end.
        interval_s: Intended seconds between samples.
    """
    lengths = np.diff(np.concatenate([[start], trace.between(start, end).times_s, [end]]))
    lost = float(lengths[lengths > _GAP_FACTOR * interval_s].sum())
    return f"no sample for {lost:.1f} of {end - start:.1f} s" if lost > 0.1 * (end - start) else ""


def bursts(trace: Trace, start: float, end: float) -> str:
    """Explains why samples of a window have no times of their own; empty if they have.

    Lines without stamps that another program buffers arrive together and would all have the same time.
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
    """Explains why single samples of a window look wrong; empty if they do not.

    Args:
        trace: The meter's trace.
        start: Beginning of the window.
        end: Its end.
        factor: Multiple of the median that is too much.
        least_w: Least value used for the median: an idle phone draws milliwatts, and wakes up.
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
    """Explains why joules above idle are meaningless; empty if they exceed their uncertainty.

    Args:
        joules: Joules of the workload, above idle.
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
        f"({idle_w:.3g} W): check the sign of its readings"
    )


def too_much(trace: Trace, start: float, end: float) -> str:
    """Explains why a window's power is probably not in watts; empty if it may be.

    For a battery or a meter's stream.
    """
    watts = trace.between(start, end).watts
    usual = float(np.median(watts)) if len(watts) else 0.0
    return f"{usual:.0f} W: are these milliwatts?" if usual > _MOST_W else ""


def frozen(trace: Trace, start: float, end: float) -> str:
    """Explains why a meter looks frozen for a part of a window; empty if it does not.

    A coarse meter often shows one value for long under a steady load, so only a fine one can be judged.

    Args:
        trace: The meter's trace.
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
    """Explains why a meter looks stuck, showing one value both in a window and when idle; empty if it does not.

    Args:
        trace: The meter's trace.
        start: Beginning of the window.
        end: Its end.
        idle: The meter's trace of the idle device. If it is empty, one value in the window is enough.
    """
    shown = _constant(trace.between(start, end))
    if shown is None or (idle and all(part.watts[-1:] != [shown] for part in idle)):
        return ""
    return (
        f"all {len(trace.between(start, end).watts)} samples are {shown:.3f} W: the meter is stuck"
    )


def one_value(trace: Trace, start: float, end: float) -> str:
    """Explains why a meter that is not stuck is doubtful: it shows one value in a window, as if it were cut off."""
    shown = _constant(trace.between(start, end))
    return (
        "" if shown is None else f"all samples are {shown:.3f} W: the meter is coarse, or saturated"
    )


def _constant(trace: Trace) -> float | None:
    """Returns the one value of a trace; None if it changes, or is short."""
    if len(trace.watts) < 2 * _FEWEST_UPDATES or np.ptp(trace.watts) != 0:
        return None
    return float(trace.watts[0])
