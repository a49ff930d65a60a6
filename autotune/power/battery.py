"""Unit and sign of a battery's current, which are the maker's affair, from readings of the idle and busy device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.errors import StableDeviceError

_MICROAMPERES_FROM = 15_000.0
"""Mean readings above this are microamperes: a busy phone draws 0.1 to 6 A."""
_LEAST_CHANGE = 0.1


@dataclass(frozen=True)
class Calibration:
    """How a battery's `current_now` is read.

    Attributes:
        amperes: Amperes for one unit.
        sign: What `current_now` is multiplied by, for discharging to be positive.
        why: How that was found, for people.
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
    """Unit and sign from readings of `current_now`.

    Work makes a battery discharge faster, or charge slower: the reading moves towards the discharging sign. The
    unit follows from its size, and is checked against the charge counter, which is in microampere-hours.

    Args:
        idle: Readings while nothing was done.
        busy: Readings while all cores worked.
        status: The battery's `status`.
        counter_a: Mean discharge while busy in amperes, from `charge_counter`; None where that did not move.

    Raises:
        StableDeviceError: The readings do not move with the work.
    """
    if not idle or not busy:
        raise StableDeviceError("the battery's current cannot be read")
    low, high = float(np.mean(idle)), float(np.mean(busy))
    size = max(abs(low), abs(high))
    amperes = 1e-6 if size >= _MICROAMPERES_FROM else 1e-3
    if abs(high - low) < _LEAST_CHANGE * max(abs(low), 1e-9):
        raise StableDeviceError(
            f"the battery's current reads {low:.0f} idle and {high:.0f} busy: it does not follow the work",
            hint="unplug the device, or use another meter (--meter)",
        )
    sign = 1 if high > low else -1
    why = f"{low:.0f} idle, {high:.0f} busy, {status.lower() or 'status unknown'}"
    if counter_a is not None and counter_a > 0:
        # The two gauges need not agree to better than the counter's coarse steps; the unit is a factor of 1000.
        candidates = {
            unit: abs(np.log(max(abs(high) * unit, 1e-9) / counter_a)) for unit in (1e-6, 1e-3)
        }
        amperes = min(candidates, key=lambda unit: candidates[unit])
        why += f", {counter_a:.2f} A by its charge counter"
    if status == "Discharging" and np.sign(high) not in (0, sign):
        raise StableDeviceError(
            f"the battery says it discharges, and its current falls from {low:.0f} to {high:.0f} under load",
            hint="use another meter (--meter)",
        )
    return Calibration(amperes, sign, why)
