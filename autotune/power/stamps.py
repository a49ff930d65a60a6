"""When readings were measured, by the stamps that they bear or by when they arrived, in the host's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAR_S = 1.0
"""Own stamps that are so near the host's clock may be its time; others are another clock's."""
_UNITS = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}
_DAY_S = 86_400.0
_STEADY = 5.0
"""A clock that runs so many times as fast as the host's, or slower by that, counts in another unit."""
_RATE_OVER_S = 1.0


@dataclass(frozen=True)
class Arrived:
    """A reading as it came.

    Attributes:
        host_s: When it arrived, in the host's monotonic time.
        wall_s: The same in seconds since the epoch.
        own_s: The stamp that it bears; None where it bears none.
        watts: What it says.
        text: The line.
    """

    host_s: float
    wall_s: float
    own_s: float | None
    watts: float
    text: str


@dataclass(frozen=True)
class Segment:
    """Readings whose stamps are of one clock that did not go back meanwhile, or that bear none.

    Attributes:
        lines: As they came.
        times_s: When each was measured, in the host's monotonic time.
        deviation_s: How far all of these may be off together.
        behind_s: How far another clock's stamps are behind the host's clock; 0 where they are its time.
        fault: Why the stamps are no seconds; empty where they are.
    """

    lines: tuple[Arrived, ...]
    times_s: tuple[float, ...]
    deviation_s: float = 0.0
    behind_s: float = 0.0
    fault: str = ""


def segments(lines: Sequence[Arrived]) -> list[Segment]:
    """Readings by the clock that stamped them; where stamps go back, as after a restart, is another one."""
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
    """The unit in which a stamp is about the host's time since the epoch, where it is not seconds; else empty."""
    return next((n for k, n in _UNITS.items() if abs(own_s / k - wall_s) < _DAY_S), "")


def _segment(lines: tuple[Arrived, ...]) -> Segment:
    """Its times.

    A reading arrives after it was measured, so the least of arrival less stamp is the most that the meter's clock
    can be behind the host's. Where it is small, it may as well be a delay: the middle is taken, and half of it is
    how far that is off. Where it is large, or below 0 as no delay is, it is another clock, and the quickest line
    is taken to have come at once.
    """
    stamped = [(line, line.own_s) for line in lines if line.own_s is not None]
    if not stamped:
        return Segment(lines, tuple(line.host_s for line in lines))
    late = min(line.wall_s - own for line, own in stamped)
    # Lines that come together, as from a buffer, tell the rate by the last of them.
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
