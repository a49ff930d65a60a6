"""A cluster's clock as Linux's cpufreq keeps it: what was asked for, what caps it, and what it therefore is."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from autotune.emulator.model.profile import ClusterProfile

_ALWAYS_HIGH = ("performance",)
_ALWAYS_LOW = ("powersave",)


@dataclass
class Policy:
    """The clock of one cluster.

    Attributes:
        cluster: What it can be.
        asked_min_khz: The user's lower limit.
        asked_max_khz: The user's upper limit.
        governor: Who chooses between the limits.
        speed_khz: What the governor `userspace` was told.
        caps_khz: Upper limits of others by their name, such as the thermal service; never shown to the user.
    """

    cluster: ClusterProfile
    asked_min_khz: int = 0
    asked_max_khz: int = 0
    governor: str = ""
    speed_khz: int = 0
    caps_khz: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to what it is after the device starts; the caps of others stay."""
        table = self.cluster.frequencies_khz
        self.asked_min_khz, self.asked_max_khz = table[0], table[-1]
        self.governor, self.speed_khz = self.cluster.governors[0], table[0]

    def nearest(self, khz: int) -> int:
        """The frequency of the table next to `khz`; the lower of two that are equally far."""
        return min(self.cluster.frequencies_khz, key=lambda f: (abs(f - khz), f))

    @property
    def state(self) -> tuple[object, ...]:
        """All that the clock depends on."""
        return (
            self.asked_min_khz, self.asked_max_khz, self.governor, self.speed_khz,
            tuple(self.caps_khz.values()),
        )  # fmt: skip

    def cap(self, name: str, khz: int | None) -> None:
        """Sets the upper limit of somebody else; None removes it."""
        if khz is None:
            self.caps_khz.pop(name, None)
        else:
            self.caps_khz[name] = khz

    @property
    def max_khz(self) -> int:
        """The upper limit that holds: the user's or the lowest cap, as a frequency of the table."""
        limit = min([self.asked_max_khz, *self.caps_khz.values()])
        table = self.cluster.frequencies_khz
        return table[max(bisect_right(table, limit) - 1, 0)]

    @property
    def min_khz(self) -> int:
        """The lower limit that holds: the user's, or the upper limit where a cap lies below it."""
        return min(self.asked_min_khz, self.max_khz)

    def clock_khz(self, busy: bool) -> int:
        """The clock now. Governors that follow the load go to one limit or the other at once."""
        if self.governor == "userspace":
            return min(max(self.speed_khz, self.min_khz), self.max_khz)
        high = self.governor in _ALWAYS_HIGH or (busy and self.governor not in _ALWAYS_LOW)
        return self.max_khz if high else self.min_khz

    def set_max(self, khz: int) -> None:
        """Takes a new upper limit from the user, as the nearest frequency.

        Raises:
            ValueError: It lies below the lower limit.
        """
        wanted = self.nearest(khz)
        if wanted < self.asked_min_khz:
            raise ValueError(f"{khz} is below the lower limit {self.asked_min_khz}")
        self.asked_max_khz = wanted

    def set_min(self, khz: int) -> None:
        """Takes a new lower limit from the user, as the nearest frequency.

        Raises:
            ValueError: It lies above the upper limit.
        """
        wanted = self.nearest(khz)
        if wanted > self.asked_max_khz:
            raise ValueError(f"{khz} is above the upper limit {self.asked_max_khz}")
        self.asked_min_khz = wanted
