"""A cluster's clock as in Linux's cpufreq: the requested limits, the caps, and the resulting clock."""

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
        cluster: The cluster, with its possible clocks.
        asked_min_khz: The user's lower limit.
        asked_max_khz: The user's upper limit.
        governor: The governor, which chooses a clock between the limits.
        speed_khz: The speed set for the governor `userspace`.
        caps_khz: Upper limits of other sources by their name, such as the thermal service; never shown to the user.
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
        """Resets the clock to its state after a start of the device. Caps of others stay."""
        table = self.cluster.frequencies_khz
        self.asked_min_khz, self.asked_max_khz = table[0], table[-1]
        self.governor, self.speed_khz = self.cluster.governors[0], table[0]

    def nearest(self, khz: int) -> int:
        """Returns the frequency of the table nearest to `khz`; the lower one if two are equally near."""
        return min(self.cluster.frequencies_khz, key=lambda f: (abs(f - khz), f))

    @property
    def state(self) -> tuple[object, ...]:
        """All values that the clock depends on."""
        return (
            self.asked_min_khz, self.asked_max_khz, self.governor, self.speed_khz,
            tuple(self.caps_khz.values()),
        )  # fmt: skip

    def cap(self, name: str, khz: int | None) -> None:
        """Sets the upper limit of another source; None removes it."""
        if khz is None:
            self.caps_khz.pop(name, None)
        else:
            self.caps_khz[name] = khz

    @property
    def max_khz(self) -> int:
        """The effective upper limit: the user's or the lowest cap, as a frequency of the table."""
        limit = min([self.asked_max_khz, *self.caps_khz.values()])
        table = self.cluster.frequencies_khz
        return table[max(bisect_right(table, limit) - 1, 0)]

    @property
    def min_khz(self) -> int:
        """The effective lower limit: the user's, or the upper limit if a cap is below it."""
        return min(self.asked_min_khz, self.max_khz)

    def clock_khz(self, busy: bool) -> int:
        """Returns the present clock. Governors that follow the load switch to one of the limits immediately."""
        if self.governor == "userspace":
            return min(max(self.speed_khz, self.min_khz), self.max_khz)
        high = self.governor in _ALWAYS_HIGH or (busy and self.governor not in _ALWAYS_LOW)
        return self.max_khz if high else self.min_khz

    def set_max(self, khz: int) -> None:
        """Sets the user's upper limit to the nearest frequency.

        Raises:
            ValueError: It is below the lower limit.
        """
        wanted = self.nearest(khz)
        if wanted < self.asked_min_khz:
            raise ValueError(f"{khz} is below the lower limit {self.asked_min_khz}")
        self.asked_max_khz = wanted

    def set_min(self, khz: int) -> None:
        """Sets the user's lower limit to the nearest frequency.

        Raises:
            ValueError: It is above the upper limit.
        """
        wanted = self.nearest(khz)
        if wanted > self.asked_max_khz:
            raise ValueError(f"{khz} is above the upper limit {self.asked_max_khz}")
        self.asked_min_khz = wanted
