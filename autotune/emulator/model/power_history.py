"""Net power of the last minute, as segments of constant power."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_KEPT_S = 60.0


@dataclass(frozen=True)
class Segment:
    """Net power, in watts, that was constant from `start` to `end`, in seconds."""

    start: float
    end: float
    net_w: float


class PowerHistory:
    """Power drawn in the last minute."""

    def __init__(self) -> None:
        self._segments: deque[Segment] = deque()

    def add(self, segment: Segment) -> None:
        """Adds the newest segment. Segments older than a minute are dropped."""
        history = self._segments
        if history and history[-1].net_w == segment.net_w:
            segment = Segment(history.pop().start, segment.end, segment.net_w)
        history.append(segment)
        while history[0].end < segment.end - _KEPT_S:
            history.popleft()

    def mean_w(self, start: float, end: float) -> float:
        """Returns the mean power between two times of the last minute, in watts."""
        joules = 0.0
        for segment in reversed(self._segments):
            if segment.end <= start:
                break
            seconds = min(end, segment.end) - max(start, segment.start)
            joules += segment.net_w * max(0.0, seconds)
        return joules / (end - start)
