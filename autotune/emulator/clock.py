"""The time that an emulated device lives in: virtual, so that tests need not wait, or the host's own."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the device was switched on."""

    def now(self) -> float:
        """Seconds since the start."""

    def sleep(self, seconds: float) -> None:
        """Lets time pass.

        Args:
            seconds: How much; nothing happens where it is not above zero.
        """


class VirtualClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self._now = 0.0
        self._lock = threading.Lock()

    def now(self) -> float:
        """See `Clock.now`."""
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        with self._lock:
            if seconds > 0:
                # However late it is, time moves on: a nanosecond may be lost beside many days.
                self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))


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
