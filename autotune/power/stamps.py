"""Measurement times of readings, from their own stamps or their arrival, in the host's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAR_S = 1.0
"""Stamps this close to the host's clock may be in its time. Others come from another clock."""
_UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}
_DAY_S = 86_400.0
_STEADY = 5.0
"""A clock that runs this many times faster or slower than the host's counts in another unit."""
_RATE_OVER_S = 1.0


@dataclass(frozen=True)
class Arrived:
    """A reading as it arrived.

    Attributes:
        host_s: When it arrived, in the host's monotonic time.
        wall_s: The same in seconds since the epoch.
        own_s: Its own stamp; None without one.
        watts: Its value.
        text: The line.
    """

    host_s: float
    wall_s: float
    own_s: float | None
    watts: float
    text: str


@dataclass(frozen=True)
class Segment:
    """Readings with stamps from one clock that did not go back, or without stamps.

    Attributes:
        lines: The readings in order of arrival.
        times_s: When each was measured, in the host's monotonic time.
        deviation_s: Possible common error of all these times.
        behind_s: How far another clock's stamps are behind the host's clock; 0 if they are in its time.
        fault: Why the stamps are not in seconds; empty if they are.
    """

    lines: tuple[Arrived, ...]
    times_s: tuple[float, ...]
    deviation_s: float = 0.0
    behind_s: float = 0.0
    fault: str = ""


def segments(lines: Sequence[Arrived]) -> list[Segment]:
    """Groups readings by the clock that stamped them.

    Stamps that go back, as after a restart, begin another clock.
    """
    parts: list[list[Arrived]] = []
    for line in lines:
        before = parts[-1][-1].own_s if parts else None
        same = parts and (before is None) == (line.own_s is None)
        if same and (before is None or line.own_s is None or line.own_s >= before):
            parts[-1].append(line)
        else:
            parts.append([line])
    return [_segment(tuple(part)) for part in parts]


def unit_of(own_s: float, wall_s: float) -> str:
    """Returns the unit, other than seconds, in which a stamp is near the host's time since the epoch; else
    empty.
    """
    return next((n for k, n in _UNITS.items() if abs(own_s / k - wall_s) < _DAY_S), "")


def _segment(lines: tuple[Arrived, ...]) -> Segment:
    """Finds measurement times of readings.

    A reading arrives after it was measured. So the smallest difference of arrival and stamp is the most that the
    meter's clock can be behind the host's. A small difference may also be a delay, so half of it is used, and half
    of it is the possible error. A large difference, or one below 0, which no delay can be, means another clock. The
    quickest line is then taken to have arrived without delay.
    """
    stamped = [(line, line.own_s) for line in lines if line.own_s is not None]
    if not stamped:
        return Segment(lines, tuple(line.host_s for line in lines))
    late = min(line.wall_s - own for line, own in stamped)
    # If lines arrive together, as from a buffer, the last of them is used to find the rate.
    first = next(i for i in reversed(range(len(lines))) if lines[i].host_s == lines[0].host_s)
    if fault := _fault(*stamped[first], *stamped[-1]):
        return Segment(lines, tuple(line.host_s for line in lines), fault=fault)
    if not 0 <= late <= NEAR_S:
        offset = min(line.host_s - own for line, own in stamped)
        behind = late if abs(late) > NEAR_S else 0.0
        return Segment(lines, tuple(own + offset for _, own in stamped), behind_s=behind)
    return Segment(
        lines,
        tuple(own - (line.wall_s - line.host_s) + late / 2 for line, own in stamped),
        late / 2,
    )


def _fault(first: Arrived, first_own: float, last: Arrived, last_own: float) -> str:
    seconds = last.host_s - first.host_s
    rate = (last_own - first_own) / seconds if seconds >= _RATE_OVER_S else 1.0
    if 1 / _STEADY <= rate <= _STEADY:
        return ""
    unit = next((n for k, n in _UNITS.items() if 1 / _STEADY <= rate / k <= _STEADY), "")
    return f"its stamps run {rate:.3g} times as fast as this host's clock: " + (
        f"they are {unit}" if unit else "they are not seconds"
    )
