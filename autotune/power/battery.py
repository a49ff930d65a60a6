"""Finds the unit and sign of a battery's current from readings of the idle and busy device. They vary by maker."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import StableDeviceError

LOGGER = logging.getLogger("autotune.power")

_UNITS = {1e-3: "milliamperes", 1e-6: "microamperes"}
_PLAUSIBLE_A = (0.1, 6.0)
"""Amperes that a busy phone may draw, or be charged with."""
_IMPOSSIBLE_A = 20.0
"""Amperes that no battery of such a device can give."""
_AGREE = 3.0
"""Largest factor between the two gauges that agree. A counter's steps are coarse, and the windows differ."""
_LEAST_CHANGE = 0.1


@dataclass(frozen=True)
class Calibration:
    """How a battery's `current_now` is read.

    Attributes:
        amperes: Amperes for one unit.
        sign: Factor for `current_now` that makes discharging positive.
        why: How this was found, for people.
    """

    amperes: float
    sign: int
    why: str

    @property
    def scale(self) -> float:
        """Watts for one unit of current at one volt."""
        return self.sign * self.amperes


def calibrate(
    idle: Sequence[float], busy: Sequence[float], *, status: str, counter_a: float | None = None
) -> Calibration:
    """Finds unit and sign from readings of `current_now`.

    Work makes a battery discharge faster, or charge more slowly, so the reading moves in the discharging direction.
    The unit follows from the reading's size, if one unit gives 0.1 to 6 A and the other does not, or is impossible.
    Otherwise it follows from the charge counter, which is in microampere-hours. If the counter moved, it must not
    contradict the result in either case.

    Args:
        idle: Readings of the idle device.
        busy: Readings while all cores worked.
        status: The battery's `status`.
        counter_a: Mean discharge while busy in amperes, from `charge_counter`; None if the counter did not move.

    Raises:
        StableDeviceError: The readings do not change with the work, fit no unit, or contradict the charge counter.
    """
    if not idle or not busy:
        raise StableDeviceError("the battery's current cannot be read")
    low, high = float(np.mean(idle)), float(np.mean(busy))
    if abs(high - low) < _LEAST_CHANGE * max(abs(low), 1e-9):
        raise StableDeviceError(
            f"the battery's current reads {low:.0f} idle and {high:.0f} busy: it does not follow the work",
            hint="unplug the device, or use another meter (--meter)",
        )
    sign = 1 if high > low else -1
    why = f"{low:.0f} idle, {high:.0f} busy, {status.lower() or 'status unknown'}"
    if counter_a is not None:
        why += f", {counter_a:.2g} A by its charge counter"
    amperes = _unit(max(abs(low), abs(high)), abs(high), counter_a, why)
    if counter_a is not None:
        _check(sign * high * amperes, counter_a, why)
    if status == "Discharging" and np.sign(high) not in (0, sign):
        raise StableDeviceError(
            f"the battery says it discharges, and its current falls from {low:.0f} to {high:.0f} under load",
            hint="use another meter (--meter)",
        )
    return Calibration(amperes, sign, why)


def _unit(size: float, busy: float, counter_a: float | None, why: str) -> float:
    """Returns the amperes for one unit, from the largest reading and the busy one."""
    found = [unit for unit in _UNITS if _PLAUSIBLE_A[0] <= size * unit <= _PLAUSIBLE_A[1]]
    if not found and size * 1e-6 <= _IMPOSSIBLE_A < size * 1e-3:
        found = [1e-6]
    if not found and counter_a is not None:
        found = [unit for unit in _UNITS if _agree(busy * unit, counter_a)]
    if found:
        return found[0]
    either = " or ".join(f"{size * unit:.2g} A in {name}" for unit, name in _UNITS.items())
    raise StableDeviceError(
        f"the unit of the battery's current is not clear ({why}): {either}, and a busy device draws 0.1 to 6 A",
        hint="use another meter (--meter)",
    )


def _check(discharge_a: float, counter_a: float, why: str) -> None:
    """Refuses a discharge that the charge counter contradicts.

    A counter that moved by one coarse step shows too much, but never less than a third of the charge.
    """
    against = discharge_a * counter_a < 0 and abs(counter_a) > abs(discharge_a) / _AGREE
    # Some drivers' counters are in milliampere-hours.
    other_unit = _agree(discharge_a, 1000 * counter_a)
    if against or (discharge_a > _AGREE * counter_a > 0 and not other_unit):
        raise StableDeviceError(
            f"the battery's current says {_flow(discharge_a)}, and its charge counter {_flow(counter_a)} ({why})",
            hint="unplug the device, or use another meter (--meter)",
        )
    if counter_a > _AGREE * abs(discharge_a):
        LOGGER.warning(
            "the battery's current says %s, and its charge counter %s, as where its steps are coarse",
            _flow(discharge_a),
            _flow(counter_a),
        )


def _agree(one: float, other: float) -> bool:
    return one > 0 and other > 0 and 1 / _AGREE <= one / other <= _AGREE


def _flow(amperes: float) -> str:
    return f"{abs(amperes):.2g} A {'discharge' if amperes > 0 else 'charge'}"
