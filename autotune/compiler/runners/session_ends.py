"""Finds out why a session ended, from the reports of the devices' servers, and counts this per candidate."""

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
_NAME_BYTES = 255  # The server keeps this much of a candidate's name.
_LOOK_S = 0.3

Mark = tuple[str, int, int]
"""Identifies a crash: device, session and time."""


class SeenCrash(Protocol):
    """A session whose death a device's server saw."""

    @property
    def session(self) -> int: ...
    @property
    def unix_s(self) -> int: ...
    @property
    def cause(self) -> str: ...
    @property
    def candidate(self) -> str: ...


class SeenServer(Protocol):
    """A device server, as the tracker reports it."""

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
    """Distinguishes a candidate's own faults from those of links and devices. Several threads may use it.

    Args:
        served: Returns the device servers, as the tracker reports them.
        patience_s: How long to wait for a server's report of an end, in seconds.
        stopped: Ends this wait.
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
        """Ignores all crashes reported so far: they belong to other runs."""
        self._known.update(mark for mark, _ in self._crashes())

    def blame(self, candidate: str, lost: SessionLost) -> bool:
        """Counts a lost session if its candidate was at fault, and returns whether it was.

        Raises:
            SessionLost: The candidate exceeded its time limit, or has killed two sessions. The text has the cause.
        """
        verdict = self._verdict(candidate, lost)
        if verdict is None:
            return False
        if verdict.timed_out:
            raise verdict
        self._died(candidate, verdict)
        return True

    def late(self, candidate: str, serial: str) -> None:
        """Counts crashes of a candidate that servers report after they are back; raises like `blame`."""
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
        """Returns the candidate's fault, with its cause; None if the link or the device was at fault."""
        served = self._servers()
        if served and not any(server.ours for server in served):
            # TVM's own server keeps no reports, so the candidate is blamed.
            return lost
        deadline = time.monotonic() + self._patience_s
        while not self._stopped.is_set():
            # For this candidate only: another thread may be waiting for the report of another candidate's end.
            fresh = self._fresh(candidate)
            if fresh:
                return _blamed(fresh[-1], lost)
            if time.monotonic() > deadline:
                return None
            self._stopped.wait(min(_LOOK_S, self._patience_s / 4))
        return None

    def _fresh(self, candidate: str) -> list[str]:
        """Returns the causes of a candidate's crashes that were not yet known."""
        found = [
            (mark, crash.cause)
            for mark, crash in self._crashes()
            if crash.candidate == candidate[:_NAME_BYTES] and mark not in self._known
        ]
        self._known.update(mark for mark, _ in found)
        return [cause for _, cause in found]

    def _crashes(self) -> list[tuple[Mark, SeenCrash]]:
        """Returns the sessions that died, as servers reported them to the tracker."""
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
    """Returns what a server's report of a session's end means for its candidate; None if it was not at fault."""
    if cause == CLIENT_GONE:
        # Either this host ended the session at the candidate's limit, or the link failed.
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
