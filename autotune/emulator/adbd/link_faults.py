"""Faults between a host and a phone that can be switched on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class LinkFaults:
    """Faults of the link, set from any thread while the phone runs.

    Attributes:
        bytes_per_second: The link's speed in both directions together; None for no limit.
        garbage_bytes: Number of invalid bytes that are sent once before the next packet.
    """

    def __init__(self) -> None:
        self.bytes_per_second: float | None = None
        self.garbage_bytes = 0
        self._lock = threading.Lock()
        self._changed: list[Callable[[], None]] = []
        self._bytes_left: int | None = None
        self._prefix: str | None = None
        self._opens_left = 0
        self._hang_until = 0.0
        self._drops = 0
        self._unauthorised = False
        self._refuse = False

    def drop_now(self) -> None:
        """Cuts the connection."""
        with self._lock:
            self._drops += 1
        self._tell()

    def drop_after(self, count: int) -> None:
        """Cuts the connection once after `count` more bytes, in the middle of a packet."""
        with self._lock:
            self._bytes_left = count

    def drop_at_open(self, prefix: str, nth: int = 1) -> None:
        """Cuts the connection once at the n-th opening of a service whose name starts with `prefix`."""
        with self._lock:
            self._prefix, self._opens_left = prefix, nth

    def hang(self, seconds: float) -> None:
        """Makes the phone answer nothing for a time."""
        with self._lock:
            self._hang_until = time.monotonic() + seconds

    @property
    def unauthorised(self) -> bool:
        """Whether the phone's owner has not allowed this host. A change cuts the connection."""
        return self._unauthorised

    @unauthorised.setter
    def unauthorised(self, wanted: bool) -> None:
        self._unauthorised = wanted
        self.drop_now()

    @property
    def refuse(self) -> bool:
        """Whether the phone refuses connections. A change cuts the connection."""
        return self._refuse

    @refuse.setter
    def refuse(self, wanted: bool) -> None:
        self._refuse = wanted
        self.drop_now()

    def clear(self) -> None:
        """Removes all faults of the link."""
        with self._lock:
            self._bytes_left, self._prefix, self._hang_until = None, None, 0.0
        self.bytes_per_second, self.garbage_bytes = None, 0
        if self._unauthorised or self._refuse:
            self._unauthorised = self._refuse = False
            self.drop_now()

    # Queries by the daemon.

    @property
    def drops(self) -> int:
        """How often the connection was to be cut so far."""
        return self._drops

    def hanging(self) -> float:
        """Returns seconds for which the phone still answers nothing."""
        return max(0.0, self._hang_until - time.monotonic())

    def allowed(self, count: int) -> int:
        """Returns how many of `count` bytes may still pass. If fewer than `count`, the link is then cut."""
        with self._lock:
            if self._bytes_left is None:
                return count
            if count < self._bytes_left:
                self._bytes_left -= count
                return count
            passed, self._bytes_left = self._bytes_left, None
            # All of them may pass, but the cut follows.
            return min(passed, count - 1) if count else 0

    def ends_open(self, service: str) -> bool:
        """Returns whether the opening of this service cuts the connection."""
        with self._lock:
            if self._prefix is None or not service.startswith(self._prefix):
                return False
            self._opens_left -= 1
            if self._opens_left > 0:
                return False
            self._prefix = None
            return True

    def on_change(self, callback: Callable[[], None]) -> None:
        """Registers a function that is told of changes with immediate effect.

        It is called from the thread of the change.
        """
        self._changed.append(callback)

    def _tell(self) -> None:
        for callback in self._changed:
            callback()
