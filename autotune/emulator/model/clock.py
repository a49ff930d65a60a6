"""The time of an emulated device: virtual, so that tests need not wait, or the host's own."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Seconds since the device was switched on."""

    def now(self) -> float:
        """Returns seconds since the start."""

    def sleep(self, seconds: float) -> None:
        """Lets time pass.

        Args:
            seconds: How much; nothing happens unless it is above zero.
        """


class VirtualClock:
    """Time that passes only during sleeps. Events that are due meanwhile happen at their own times."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.RLock()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """See `Clock.now`."""
        with self._lock:
            return self._now

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Schedules an action for a time. Whoever sleeps at that time carries it out."""
        with self._lock:
            heapq.heappush(self._due, (time_s, next(self._order), act))

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        with self._lock:
            if seconds <= 0:
                return
            # However late it is, time must move on: a nanosecond may be lost beside many days.
            until = max(self._now + seconds, math.nextafter(self._now, math.inf))
            while self._due and self._due[0][0] <= until:
                time_s, _, act = heapq.heappop(self._due)
                self._now = max(self._now, time_s)
                act()
            self._now = max(self._now, until)


class RealClock:
    """The host's monotonic clock, from zero."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def now(self) -> float:
        """See `Clock.now`."""
        return time.monotonic() - self._start

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        if seconds > 0:
            time.sleep(seconds)
