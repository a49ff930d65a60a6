"""Sessions on the devices that a tracker has under a key: opened when needed, shared, and given up in turn."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from autotune.compiler.runners.session_ends import SeenServer, SessionLost
from autotune.compiler.workers import Message, WorkerLost
from autotune.errors import TransientDeviceError
from autotune.measurement import Conditions
from autotune.waits import waiting

LOGGER = logging.getLogger("autotune.devices")

_LOAD_TIMEOUT_S = 60.0
_SLOWEST_LINK_BYTES_PER_S = 1e6
_MOST = 64


class Tracker(Protocol):
    """The tracker that provides devices."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

    def served(self, key: str | None = None) -> Sequence[SeenServer]:
        """Returns the device servers of a key.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """

    def free(self, key: str) -> int:
        """Returns the number of devices of a key that wait for a client.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """


class SessionWorker(Protocol):
    """Carries requests to a session: a worker process, or an emulated one."""

    def ask(self, request: Message, *, timeout: float) -> Message:
        """Sends a request and waits for its answer.

        Raises:
            WorkerLost: It crashed, or exceeded the time limit.
        """

    def stop(self) -> None:
        """Ends it. The next request starts it again."""


@dataclass(frozen=True)
class SessionWaits:
    """Time limits of waits for sessions, in seconds.

    Attributes:
        patience_s: For a device to come (back), before the run is given up.
        open_s: For a session that the tracker has promised.
        verdict_s: For a server's report of why a session ended.
        retry_s: Between two looks for a device.
        turn_s: How long a session is kept. After that, other waiting clients get the device.
        session_s: The longest session; the server ends it.
    """

    patience_s: float = 600.0
    open_s: float = 30.0
    verdict_s: float = 12.0
    retry_s: float = 0.5
    turn_s: float = 120.0
    session_s: float = 3600.0


WAITS = SessionWaits()


class Session:
    """One session at a time, on any device that the tracker assigns.

    Args:
        worker: Carries the requests.
        open_s: Limit in seconds for opening a session, and for short requests.

    Attributes:
        serial: The device of the open session; empty if none is open.
        opened_s: When it was opened, by the monotonic clock; None if none is open.
    """

    def __init__(self, worker: SessionWorker, open_s: float) -> None:
        self._worker = worker
        self._open_s = open_s
        self._loaded: Path | None = None
        self.serial = ""
        self.opened_s: float | None = None

    def open(self, key: str) -> str:
        """Opens a session. Returns the reason if it fails, otherwise an empty string."""
        try:
            answer = self._worker.ask({"op": "open"}, timeout=self._open_s)
        except WorkerLost as lost:
            answer = {"lost": str(lost)}
        reason = answer.get("lost") or answer.get("error")
        if reason is not None:
            self.end()
            return _last_line(str(reason))
        self.serial = str(answer.get("info", {}).get("serial", "")) or key
        self.opened_s = time.monotonic()
        return ""

    def end(self) -> None:
        """Ends the session and gives the device back."""
        self._worker.stop()
        self.serial, self.opened_s, self._loaded = "", None, None

    def load(self, data: Path) -> None:
        """Copies a kernel's data to the device, unless they are already there.

        Raises:
            SessionLost: The session ended.
        """
        if self._loaded == data:
            return
        size = sum(file.stat().st_size for file in data.glob("*.npy"))
        timeout = _LOAD_TIMEOUT_S + size / _SLOWEST_LINK_BYTES_PER_S
        self.ask({"op": "load", "data": str(data)}, timeout)
        self._loaded = data

    def look(self) -> Conditions:
        """Returns the device's conditions now.

        Raises:
            SessionLost: The session ended.
        """
        found = self.ask({"op": "conditions"}, self._open_s)["conditions"]
        return Conditions.from_json(found[0]) if found else Conditions()

    def ask(self, message: Message, timeout_s: float) -> Message:
        """Sends a request and returns its answer.

        Raises:
            SessionLost: The session ended before the answer.
        """
        serial = self.serial
        try:
            answer = self._worker.ask(message, timeout=timeout_s)
        except WorkerLost as lost:
            self.end()
            raise SessionLost(str(lost), timed_out=lost.timed_out, serial=serial) from lost
        if "lost" in answer:
            self.end()
            raise SessionLost(_last_line(str(answer["lost"])), timed_out=False, serial=serial)
        return answer


class Sessions:
    """One session per device. Several threads may use it.

    Args:
        tracker: The tracker.
        key: Key of the devices.
        make: Makes the worker that carries a session's requests.
        waits: Time limits of its waits.
        wanted: Called while it waits for a device; returns whether one is still wanted.
    """

    def __init__(
        self,
        tracker: Tracker,
        key: str,
        make: Callable[[], SessionWorker],
        waits: SessionWaits,
        wanted: Callable[[], bool],
    ) -> None:
        self._tracker = tracker
        self._key = key
        self._make = make
        self._waits = waits
        self._wanted = wanted
        self._all: list[Session] = []
        self._idle: list[Session] = []
        self._returned = threading.Condition()

    def at_once(self) -> int:
        """Returns the number of devices under the key now, at least 1."""
        try:
            found = len(self._tracker.served(self._key))
        except TransientDeviceError:
            found = 0
        wanted = max(1, min(found, _MOST), len(self._all))
        with self._returned:
            while len(self._all) < wanted:
                self._all.append(Session(self._make(), self._waits.open_s))
                self._idle.append(self._all[-1])
        return wanted

    def stop(self) -> None:
        """Ends all sessions."""
        for session in self._all:
            session.end()

    @contextmanager
    def one(self, until: float) -> Iterator[Session]:
        """Yields an open session.

        Args:
            until: When to give up waiting for one, by the monotonic clock.

        Raises:
            TransientDeviceError: None could be opened in time.
        """
        with waiting(f"a device under key '{self._key}' to be free"):
            session = self._opened(until)
        try:
            yield session
        finally:
            self._put(session)

    def _opened(self, until: float) -> Session:
        """Returns an open session, which nobody else uses; see `one`."""
        while True:
            session = self._take()
            opened = session.opened_s
            if opened is not None and time.monotonic() - opened > self._waits.turn_s:
                # Others may wait at the same tracker; the next one gets the device.
                session.end()
            if session.opened_s is not None or self._open(session):
                return session
            self._put(session)
            with self._returned:  # Another session may become idle before a device is free.
                self._returned.wait(self._waits.retry_s)
            if not self._wanted() or time.monotonic() > until:
                raise TransientDeviceError(
                    f"no device under key '{self._key}' is free",
                    hint="see `autotune tracker status`; all that was measured is kept: --resume continues",
                )

    def _open(self, session: Session) -> bool:
        """Opens a session if a device is free."""
        try:
            if not self._tracker.free(self._key):
                return False
            reason = session.open(self._key)
        except TransientDeviceError as error:
            reason = error.message
        if reason:
            LOGGER.warning("no session under '%s' yet: %s", self._key, reason)
        return not reason

    def _take(self) -> Session:
        """Takes an idle session, preferably an open one."""
        with self._returned:
            while not self._idle:
                self._returned.wait()
            found = next((one for one in self._idle if one.opened_s is not None), self._idle[0])
            self._idle.remove(found)
            return found

    def _put(self, session: Session) -> None:
        with self._returned:
            self._idle.append(session)
            self._returned.notify_all()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
