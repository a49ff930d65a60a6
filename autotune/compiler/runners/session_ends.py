"""Whose fault it was that a session ended: what the devices' servers tell, counted for each candidate."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from autotune.compiler.workers import WorkerLost
from autotune.errors import TransientDeviceError

LOGGER = logging.getLogger("autotune.devices")

CLIENT_GONE = "client gone"
WENT_DOWN = "server or device went down"
_DEADLY_TIMES = 2
_NAME_BYTES = 255  # what the server keeps of a candidate's name
_LOOK_S = 0.3

Mark = tuple[str, int, int]
"""Tells one crash from every other: the device, the session, and when."""


class SeenCrash(Protocol):
    """A session that a device's server saw die."""

    @property
    def session(self) -> int: ...
    @property
    def unix_s(self) -> int: ...
    @property
    def cause(self) -> str: ...
    @property
    def candidate(self) -> str: ...


class SeenServer(Protocol):
    """A device server as the tracker tells of it."""

    @property
    def serial(self) -> str: ...
    @property
    def ours(self) -> bool: ...
    @property
    def recent(self) -> Sequence[SeenCrash]: ...


class SessionLost(WorkerLost):
    """A session on a device ended before its answer came."""

    def __init__(self, message: str, *, timed_out: bool, serial: str) -> None:
        super().__init__(message, timed_out=timed_out)
        self.serial = serial


class SessionEnds:
    """Tells a candidate's own faults from those of links and devices. May be used by several threads.

    Args:
        served: The device servers, as the tracker tells of them.
        patience_s: How long a server's word of an end is waited for.
        stopped: Ends that wait.
    """

    def __init__(
        self,
        served: Callable[[], Sequence[SeenServer]],
        patience_s: float,
        stopped: threading.Event,
    ) -> None:
        self._served = served
        self._patience_s = patience_s
        self._stopped = stopped
        self._known: set[Mark] = set()
        self._deaths: Counter[str] = Counter()

    def forget(self) -> None:
        """What was told until now is of others."""
        self._known.update(mark for mark, _ in self._crashes())

    def blame(self, candidate: str, lost: SessionLost) -> bool:
        """Counts a session that a candidate has lost, where that was its own fault; returns whether it was.

        Raises:
            SessionLost: With its cause: the candidate ran into its limit, or has killed two sessions.
        """
        verdict = self._verdict(candidate, lost)
        if verdict is None:
            return False
        if verdict.timed_out:
            raise verdict
        self._died(candidate, verdict)
        return True

    def late(self, candidate: str, serial: str) -> None:
        """Counts what servers that are there again tell of a candidate; raises as `blame` does."""
        for cause in self._fresh(candidate):
            lost = SessionLost("session lost", timed_out=False, serial=serial)
            verdict = _blamed(cause, lost)
            if verdict is not None:
                self._died(candidate, verdict)

    def _died(self, candidate: str, verdict: SessionLost) -> None:
        self._deaths[candidate] += 1
        LOGGER.warning("%s: candidate %s: %s", verdict.serial, candidate, verdict)
        if self._deaths[candidate] >= _DEADLY_TIMES:
            raise SessionLost(
                f"{verdict}; it killed its session {_DEADLY_TIMES} times and is quarantined",
                timed_out=False,
                serial=verdict.serial,
            )

    def _verdict(self, candidate: str, lost: SessionLost) -> SessionLost | None:
        """The candidate's own fault, with its cause; None where the link or the device was at fault."""
        served = self._servers()
        if served and not any(server.ours for server in served):
            # TVM's own server remembers nothing: the candidate is all there is to blame.
            return lost
        deadline = time.monotonic() + self._patience_s
        while not self._stopped.is_set():
            # Of this candidate only: another thread may be waiting to hear of another one's end.
            fresh = self._fresh(candidate)
            if fresh:
                return _blamed(fresh[-1], lost)
            if time.monotonic() > deadline:
                return None
            self._stopped.wait(min(_LOOK_S, self._patience_s / 4))
        return None

    def _fresh(self, candidate: str) -> list[str]:
        """Causes of a candidate's ends that were not known yet."""
        found = [
            (mark, crash.cause)
            for mark, crash in self._crashes()
            if crash.candidate == candidate[:_NAME_BYTES] and mark not in self._known
        ]
        self._known.update(mark for mark, _ in found)
        return [cause for _, cause in found]

    def _crashes(self) -> list[tuple[Mark, SeenCrash]]:
        """What servers have told the tracker of sessions that died."""
        return [
            ((server.serial, crash.session, crash.unix_s), crash)
            for server in self._servers()
            for crash in server.recent
        ]

    def _servers(self) -> Sequence[SeenServer]:
        try:
            return self._served()
        except TransientDeviceError:
            return ()


def _blamed(cause: str, lost: SessionLost) -> SessionLost | None:
    """What a server's word of a session's end says of the candidate that ran in it."""
    if cause == CLIENT_GONE:
        # This host ended the session at the candidate's limit, or the link did it.
        return lost if lost.timed_out else None
    if cause == WENT_DOWN:
        return SessionLost(
            f"the server or the device went down with it on {lost.serial}",
            timed_out=False,
            serial=lost.serial,
        )
    timed_out = lost.timed_out or cause == "timeout"
    text = "it took longer than its limit" if timed_out else f"it died of {cause}"
    return SessionLost(f"{text} on {lost.serial}", timed_out=timed_out, serial=lost.serial)
