"""A device's conditions at one moment, and the ways in which they are worse than its best."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from autotune.devices import cpu_list, cpu_list_text
from autotune.measurement.conditions import BODY


@dataclass(frozen=True)
class Clock:
    """A clock of a cluster or of the graphics processor; 0 for an unknown value.

    Attributes:
        name: The system's name for it.
        cpus: Cores that run at it; empty for the graphics processor.
        khz: Its present value.
        cap_khz: The highest value allowed at present.
        highest_khz: The highest value of the hardware.
    """

    name: str
    cpus: str
    khz: int
    cap_khz: int
    highest_khz: int


@dataclass(frozen=True)
class Conditions:
    """Conditions that a measurement depends on and that the system may change during it.

    Attributes:
        celsius: Temperature; None without a sensor.
        zone: Name of that sensor.
        online: Cores that are on.
        cpus: Cores that the measuring process may use.
        clocks: Clocks of the cores and processors that it may use.
    """

    celsius: float | None = None
    zone: str = ""
    online: str = ""
    cpus: str = ""
    clocks: tuple[Clock, ...] = ()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Conditions:
        """Reads the device server's report, or the output of `to_json`.

        Raises:
            KeyError, TypeError: The content is something else.
        """
        clocks = tuple(Clock(**clock) for clock in content["clocks"])
        return cls(**{**content, "clocks": clocks})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Broken:
    """A bad condition, in words; `hot` if it is heat, or a cap caused by heat."""

    why: str
    hot: bool = False


class Best:
    """The best conditions seen on a device: its coolest, its highest caps, all cores that it ever gave.

    Args:
        band_k: How far above its coolest a device's body may be during a measurement.
        clocks: Clocks whose caps count: `cpu` for those of cores only, otherwise all.
    """

    def __init__(self, band_k: float, kind: str) -> None:
        self._band_k = band_k
        self._cores_only = kind.endswith("cpu")
        self._coolest_c: float | None = None
        self._caps: dict[str, int] = {}
        self._online: set[int] = set()
        self._cpus: set[int] = set()

    def learn(self, now: Conditions) -> None:
        """Updates the best with a reading."""
        # A core's own sensor rises by tens of degrees within a second of work, so it is not used.
        if now.celsius is not None and any(word in now.zone.lower() for word in BODY):
            known = now.celsius if self._coolest_c is None else self._coolest_c
            self._coolest_c = min(now.celsius, known)
        for clock in self._counting(now):
            self._caps[clock.name] = max(clock.cap_khz, self._caps.get(clock.name, 0))
        self._online |= set(cpu_list(now.online))
        self._cpus |= set(cpu_list(now.cpus))

    def broken(self, now: Conditions, *, rested: bool = False) -> list[Broken]:
        """Returns the ways in which a reading is worse than the best; empty if there are none.

        Args:
            now: The reading; it has been learnt already.
            rested: Use half the band, so that a device that has cooled does not leave the band at once.
        """
        found = []
        for clock in self._counting(now):
            best = self._caps[clock.name]
            if 0 < clock.cap_khz < best:
                found.append(
                    Broken(f"{clock.name} is held to {_mhz(clock.cap_khz)} of {_mhz(best)} MHz", hot=True)
                )  # fmt: skip
        if self._coolest_c is not None and now.celsius is not None:
            most = self._coolest_c + self._band_k * (0.5 if rested else 1.0)
            if now.celsius > most:
                found.append(
                    Broken(f"{now.zone} is at {now.celsius:.1f} C, over {most:.1f} C", hot=True)
                )
        if missing := self._online - set(cpu_list(now.online)):
            found.append(Broken(f"cores {cpu_list_text(tuple(missing))} went off"))
        elif missing := self._cpus - set(cpu_list(now.cpus)):
            found.append(Broken(f"cores {cpu_list_text(tuple(missing))} were taken away"))
        return found

    def _counting(self, now: Conditions) -> list[Clock]:
        return [clock for clock in now.clocks if clock.cpus or not self._cores_only]


def _mhz(khz: int) -> str:
    return f"{khz / 1000:.0f}"
