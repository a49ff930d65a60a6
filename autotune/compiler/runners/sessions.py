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

LOGGER = logging.getLogger("autotune.devices")

_LOAD_TIMEOUT_S = 60.0
_SLOWEST_LINK_BYTES_PER_S = 1e6
_MOST = 64


class Tracker(Protocol):
    """The tracker that devices are asked from."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...

    def served(self, key: str | None = None) -> Sequence[SeenServer]:
        """The device servers of a key.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """

    def free(self, key: str) -> int:
        """Devices of a key that wait for a client.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """


class Asked(Protocol):
    """What carries requests to a session: a worker process, or an emulated one."""

    def ask(self, request: Message, *, timeout: float) -> Message:
        """Sends a request and waits for its answer.

        Raises:
            WorkerLost: It crashed, or its time was over.
        """

    def stop(self) -> None:
        """Ends it; the next request begins anew."""


@dataclass(frozen=True)
class SessionWaits:
    """How long sessions are waited for, in seconds.

    Attributes:
        patience_s: For a device to come (back), before the run is given up.
        open_s: For a session that the tracker has promised.
        verdict_s: For a server's word of why a session ended.
        retry_s: Between two looks for a device.
        turn_s: A session is kept so long; then whoever else waits for the device gets it.
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
    """One session at a time, on whatever device the tracker gives.

    Args:
        worker: Carries the requests.
        open_s: For the tracker's promise, and for short questions.

    Attributes:
        serial: The device of the open session; empty where none is open.
        opened_s: When it was opened, by the monotonic clock; None where none is.
    """

    def __init__(self, worker: Asked, open_s: float) -> None:
        self._worker = worker
        self._open_s = open_s
        self._loaded: Path | None = None
        self.serial = ""
        self.opened_s: float | None = None

    def open(self, key: str) -> str:
        """Opens a session; why there is none, or nothing."""
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
        """Gives the device back."""
        self._worker.stop()
        self.serial, self.opened_s, self._loaded = "", None, None

    def load(self, data: Path) -> None:
        """Brings a kernel's data to the device, unless it is there.

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
        """What the device tells of itself now.

        Raises:
            SessionLost: The session ended.
        """
        found = self.ask({"op": "conditions"}, self._open_s)["conditions"]
        return Conditions.from_json(found[0]) if found else Conditions()

    def ask(self, message: Message, timeout_s: float) -> Message:
        """The answer to a request.

        Raises:
            SessionLost: The session ended before there was one.
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
    """As many sessions as there are devices. May be used by several threads.

    Args:
        tracker: The tracker.
        key: Key of the devices.
        make: Gives what carries a session's requests.
        waits: How long it waits for what.
        wanted: Asked while it waits for a device: whether anybody still wants one.
    """

    def __init__(
        self,
        tracker: Tracker,
        key: str,
        make: Callable[[], Asked],
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
        """Devices under the key now, at least 1."""
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
        """Ends all of them."""
        for session in self._all:
            session.end()

    @contextmanager
    def one(self, until: float) -> Iterator[Session]:
        """An open session.

        Args:
            until: When it is given up to wait for one, by the monotonic clock.

        Raises:
            TransientDeviceError: None could be opened in time.
        """
        while True:
            session = self._take()
            opened = session.opened_s
            if opened is not None and time.monotonic() - opened > self._waits.turn_s:
                # Others wait at the same tracker: whoever is next gets the device.
                session.end()
            if session.opened_s is not None or self._open(session):
                break
            self._put(session)
            with self._returned:  # Another may become free before this one finds a device.
                self._returned.wait(self._waits.retry_s)
            if not self._wanted() or time.monotonic() > until:
                raise TransientDeviceError(
                    f"no device under key '{self._key}' is free",
                    hint="see `autotune tracker status`; all that was measured is kept: --resume continues",
                )
        try:
            yield session
        finally:
            self._put(session)

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
        """An idle one, open where there is one that is."""
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
