"""The body's temperature: one heat capacity behind one resistance, and the trip points that cap the clocks."""

from __future__ import annotations

import math

from autotune.emulator.model.profile import Thermal


class Heat:
    """Temperature of a device over time.

    With net power P (watts above idle) the body approaches `ambient + R P` as exp(-t / (R C)): a first-order
    low-pass. It is solved exactly, so long steps lose no accuracy.

    Args:
        thermal: The constants.
    """

    def __init__(self, thermal: Thermal) -> None:
        self._thermal = thermal
        self.celsius = thermal.ambient_c
        self.level = 0
        self._forced = 0

    @property
    def time_constant_s(self) -> float:
        """R C in seconds."""
        return self._thermal.resistance_k_w * self._thermal.capacity_j_k

    @property
    def throttle_level(self) -> int:
        """Number of trip points that cap the clocks: those that were passed, or those that are forced."""
        return max(self.level, self._forced)

    def force(self, level: int) -> None:
        """Caps the clocks as if `level` trip points were passed; 0 ends this."""
        self._forced = min(max(level, 0), len(self._thermal.trips))

    def cap_khz(self, cluster: int) -> int | None:
        """Returns the present thermal cap of a cluster's clock; None without one."""
        level = self.throttle_level
        return self._thermal.trips[level - 1].caps_khz[cluster] if level else None

    def _steady(self, net_w: float) -> float:
        return self._thermal.ambient_c + self._thermal.resistance_k_w * net_w

    def advance(self, net_w: float, seconds: float) -> None:
        """Lets `seconds` pass at a constant net power."""
        steady = self._steady(net_w)
        self.celsius = steady + (self.celsius - steady) * math.exp(-seconds / self.time_constant_s)

    def settle(self) -> bool:
        """Moves to the trip level for the temperature, and returns whether the level changed."""
        before = self.level
        while self.level < len(self._thermal.trips) and self.celsius >= self._up() - 1e-9:
            self.level += 1
        while self.level > 0 and self.celsius <= self._down() + 1e-9:
            self.level -= 1
        return self.level != before

    def until_next_level(self, net_w: float) -> float:
        """Returns seconds at a constant net power until the level changes; infinity if it never does."""
        steady = self._steady(net_w)
        for there, target in (
            (self.level < len(self._thermal.trips), self._up),
            (self.level > 0, self._down),
        ):
            if there:
                ratio = (
                    (target() - steady) / (self.celsius - steady) if self.celsius != steady else 0
                )
                if 0 < ratio < 1:
                    return -self.time_constant_s * math.log(ratio)
        return math.inf

    def _up(self) -> float:
        """Returns the temperature at which the next level begins."""
        return self._thermal.trips[self.level].celsius

    def _down(self) -> float:
        """Returns the temperature at which the present level ends."""
        return self._thermal.trips[self.level - 1].celsius - self._thermal.hysteresis_k
