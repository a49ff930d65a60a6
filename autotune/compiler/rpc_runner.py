"""The runner for devices behind a tracker: any number of them, which may crash, hang and go away."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from autotune.compiler.host import runtime_environment
from autotune.compiler.opencl_sidecar import OpenCLDevice
from autotune.compiler.runner import (
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    MeasureRequest,
    comparison,
    comparison_message,
    comparison_of,
    measured,
    measurement_message,
    outcome_of,
)
from autotune.compiler.steady import USUAL, Limits, Steady
from autotune.compiler.workers import Message, Worker, WorkerLost
from autotune.errors import ToolchainError, TransientDeviceError
from autotune.measurement import Outcome, Status
from autotune.measurement.snapshot import Conditions

LOGGER = logging.getLogger("autotune.devices")

CLIENT_GONE = "client gone"
WENT_DOWN = "server or device went down"
_LOAD_TIMEOUT_S = 60.0
_SLOWEST_LINK_BYTES_PER_S = 1e6
_COMPARE_TIMEOUT_S = 600.0
_LINK_FAILURES = 5
_DEADLY_TIMES = 2
_MOST_LANES = 64
_NAME_BYTES = 255  # what the server keeps of a candidate's name


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


@dataclass
class _Lane:
    """One session's worth of work.

    Attributes:
        worker: Carries the requests.
        serial: The device of the open session; empty where none is open.
        opened_s: When the session was opened, by the monotonic clock.
        loaded: The data that the device holds.
    """

    worker: Asked
    serial: str = ""
    opened_s: float | None = None
    loaded: Path | None = None

    def end(self) -> None:
        self.worker.stop()
        self.serial, self.opened_s, self.loaded = "", None, None


@dataclass(frozen=True)
class Waits:
    """How long the runner waits, in seconds.

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


class _SessionLost(Exception):  # noqa: N818  # what happened
    def __init__(self, message: str, *, timed_out: bool, serial: str) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.serial = serial


class RpcRunner:
    """Measures on the devices that a tracker has under a key, as many at once as there are.

    A session that is lost has a cause. Where the device's server has seen the candidate kill it, the candidate
    is tried once more and then quarantined; a candidate that ran into its time limit is given up at once. Where
    it has seen nothing of the kind, the link was cut or the device went away, and the candidate is measured
    again when a device is back. No candidate counts twice.

    Args:
        tracker: The tracker.
        key: Key of the devices.
        device: What they are.
        make: Gives a worker; a process of its own by default.
        waits: How long it waits for what.
        limits: When a measurement counts.
    """

    apart = True

    def __init__(
        self,
        tracker: Tracker,
        key: str,
        device: DeviceFingerprint,
        *,
        make: Callable[[], Asked] | None = None,
        waits: Waits = Waits(),
        limits: Limits = USUAL,
    ) -> None:
        self.device = device
        self._tracker = tracker
        self._key = key
        self._make = make or self._process
        self._waits = waits
        self._all: list[_Lane] = []
        self._idle: list[_Lane] = []
        self._returned = threading.Condition()
        self._known: set[Mark] = set()
        self._stopped = threading.Event()
        self.give_up: Callable[[], bool] = lambda: False
        """Asked while it waits for a device: whether nobody wants the measurement any more."""
        self._deaths: Counter[str] = Counter()
        self._steady = Steady(
            device.kind, limits, lambda: not (self._stopped.is_set() or self.give_up())
        )

    def _process(self) -> Worker:
        about = {
            "host": self._tracker.host,
            "port": self._tracker.port,
            "key": self._key,
            "session_timeout_s": self._waits.session_s,
        }
        kind = "opencl" if self.device.kind.endswith("opencl") else "cpu"
        return Worker(
            "autotune.compiler.rpc_worker", [kind, json.dumps(about)], runtime_environment()
        )

    def at_once(self) -> int:
        """Devices under the key now, at least 1; see `Runner.at_once`."""
        try:
            found = len(self._tracker.served(self._key))
        except TransientDeviceError:
            found = 0
        wanted = max(1, min(found, _MOST_LANES), len(self._all))
        with self._returned:
            while len(self._all) < wanted:
                self._all.append(_Lane(self._make()))
                self._idle.append(self._all[-1])
        return wanted

    def start(self) -> None:
        """See `Runner.start`."""
        self.at_once()
        self._known.update(mark for mark, _ in self._crashes())

    def opencl_device(self) -> OpenCLDevice | None:
        """The devices' first OpenCL device, asked over a session; None where the server is not ours.

        Raises:
            TransientDeviceError: No device is free within half a minute, or its session was lost.
            ToolchainError: The device has no OpenCL.
        """
        self.at_once()
        with self._lane(time.monotonic() + self._waits.open_s) as lane:
            serial = lane.serial
            try:
                found = self._ask(lane, {"op": "opencl"}, self._waits.open_s).get("device")
            except _SessionLost as lost:
                raise TransientDeviceError(f"{serial}: {lost}") from lost
        if found is None:
            return None
        if not found["devices"]:
            raise ToolchainError(f"{serial} has no OpenCL: {found['reason']}")
        return OpenCLDevice.from_json(found["devices"][0])

    def interrupt(self) -> None:
        """See `Runner.interrupt`."""
        self._stopped.set()

    def stop(self) -> None:
        """See `Runner.stop`."""
        self._stopped.set()
        for lane in self._all:
            lane.end()

    def measure(self, request: MeasureRequest) -> Outcome:
        """See `Runner.measure`. May be called by several threads.

        Raises:
            TransientDeviceError: No device came back in time.
        """
        return outcome_of(self._steady.hold(lambda: self._measured(request)))

    def _measured(self, request: MeasureRequest) -> Outcome:
        candidate = request.library.parent.name
        message = {**measurement_message(request), "candidate": candidate}
        try:
            answer, serial = self._carried_out(message, request.data, candidate, request.timeout_s)
        except _SessionLost as lost:
            status: Status = "timeout" if lost.timed_out else "run_error"
            return Outcome(status, message=f"run: {lost}", device=lost.serial)
        return measured(answer, request.tolerance, device=serial)

    def compare(self, request: CompareRequest) -> Comparison:
        """See `Runner.compare`.

        Raises:
            TransientDeviceError: No device came back in time.
        """
        name = "+".join(path.parent.name for path in request.libraries)
        message = {**comparison_message(request), "candidate": name}

        def compared(rest: bool = True) -> Comparison:
            try:
                answer, serial = self._carried_out(
                    message, request.data, name, _COMPARE_TIMEOUT_S, rest=rest
                )
            except _SessionLost as lost:
                raise WorkerLost(str(lost), timed_out=lost.timed_out) from lost
            return comparison(answer, device=serial)

        return comparison_of(self._steady.hold(compared), lambda: compared(rest=False))

    def _carried_out(
        self, message: Message, data: Path, candidate: str, timeout_s: float, *, rest: bool = True
    ) -> tuple[Message, str]:
        """The answer, and the device that gave it, which may have rested first. Goes on over lost links;
        raises for the candidate's own faults.
        """
        failures = 0
        until = time.monotonic() + self._waits.patience_s
        while True:
            with self._lane(until) as lane:
                serial = lane.serial
                if failures:
                    # A server that was taken down tells of it only when it is there again.
                    self._late_deaths(candidate, serial)
                try:
                    if rest:
                        self._steady.rest(serial, partial(self._look, lane))
                    self._load(lane, data)
                    answer = self._ask(lane, message, timeout_s)
                except _SessionLost as lost:
                    reason = str(lost)
                    verdict = self._verdict(candidate, lost)
                else:
                    return answer, serial
            if verdict is not None:
                if verdict.timed_out:
                    raise verdict
                self._died(candidate, verdict)
                continue
            failures += 1
            LOGGER.warning("%s: session lost, not by its candidate (%s); again", serial, reason)
            if failures >= _LINK_FAILURES:
                raise _SessionLost(
                    f"the link to the device was lost {failures} times", timed_out=False, serial=serial
                )  # fmt: skip
            until = max(until, time.monotonic() + self._waits.patience_s)

    def _died(self, candidate: str, verdict: _SessionLost) -> None:
        """Counts a session that a candidate has killed.

        Raises:
            _SessionLost: It has killed two, and is quarantined.
        """
        self._deaths[candidate] += 1
        LOGGER.warning("%s: candidate %s: %s", verdict.serial, candidate, verdict)
        if self._deaths[candidate] >= _DEADLY_TIMES:
            raise _SessionLost(
                f"{verdict}; it killed its session {_DEADLY_TIMES} times and is quarantined",
                timed_out=False,
                serial=verdict.serial,
            )

    def _late_deaths(self, candidate: str, serial: str) -> None:
        """Counts what servers that are there again tell of a candidate; raises as `_died` does."""
        for cause in self._fresh(candidate):
            lost = _SessionLost("session lost", timed_out=False, serial=serial)
            verdict = _blamed(cause, lost)
            if verdict is not None:
                self._died(candidate, verdict)

    def _fresh(self, candidate: str) -> list[str]:
        """Causes of a candidate's ends that were not known yet."""
        found = [
            (mark, crash.cause)
            for mark, crash in self._crashes()
            if crash.candidate == candidate[:_NAME_BYTES] and mark not in self._known
        ]
        self._known.update(mark for mark, _ in found)
        return [cause for _, cause in found]

    @contextmanager
    def _lane(self, until: float) -> Iterator[_Lane]:
        """A lane with an open session.

        Raises:
            TransientDeviceError: None could be opened in time.
        """
        while True:
            lane = self._take()
            if lane.opened_s is not None and time.monotonic() - lane.opened_s > self._waits.turn_s:
                # Others wait at the same tracker: whoever is next gets the device.
                lane.end()
            if lane.opened_s is not None or self._open(lane):
                break
            self._put(lane)
            with self._returned:  # Another lane may become free before this one finds a device.
                self._returned.wait(self._waits.retry_s)
            if self._stopped.is_set() or self.give_up() or time.monotonic() > until:
                raise TransientDeviceError(
                    f"no device under key '{self._key}' is free",
                    hint="see `autotune tracker status`; all that was measured is kept: --resume goes on",
                )
        try:
            yield lane
        finally:
            self._put(lane)

    def _take(self) -> _Lane:
        """An idle lane, one with an open session where there is one."""
        with self._returned:
            while not self._idle:
                self._returned.wait()
            lane = next((lane for lane in self._idle if lane.opened_s is not None), self._idle[0])
            self._idle.remove(lane)
            return lane

    def _put(self, lane: _Lane) -> None:
        with self._returned:
            self._idle.append(lane)
            self._returned.notify_all()

    def _open(self, lane: _Lane) -> bool:
        """Opens a session if a device is free."""
        try:
            if not self._tracker.free(self._key):
                return False
            answer = lane.worker.ask({"op": "open"}, timeout=self._waits.open_s)
        except TransientDeviceError as error:
            answer = {"lost": error.message}
        except WorkerLost as lost:
            answer = {"lost": str(lost)}
        reason = answer.get("lost") or answer.get("error")
        if reason is not None:
            LOGGER.warning("no session under '%s' yet: %s", self._key, _first_line(str(reason)))
            lane.end()
            return False
        lane.serial = str(answer.get("info", {}).get("serial", "")) or self._key
        lane.opened_s = time.monotonic()
        lane.loaded = None
        return True

    def _look(self, lane: _Lane) -> Conditions:
        """What the device tells of itself now."""
        found = self._ask(lane, {"op": "conditions"}, self._waits.open_s)["conditions"]
        return Conditions.from_json(found[0]) if found else Conditions()

    def _load(self, lane: _Lane, data: Path) -> None:
        """Brings a kernel's data to the device, unless it is there."""
        if lane.loaded == data:
            return
        size = sum(file.stat().st_size for file in data.glob("*.npy"))
        timeout = _LOAD_TIMEOUT_S + size / _SLOWEST_LINK_BYTES_PER_S
        self._ask(lane, {"op": "load", "data": str(data)}, timeout)
        lane.loaded = data

    def _ask(self, lane: _Lane, message: Message, timeout_s: float) -> Message:
        serial = lane.serial
        try:
            answer = lane.worker.ask(message, timeout=timeout_s)
        except WorkerLost as lost:
            lane.end()
            raise _SessionLost(str(lost), timed_out=lost.timed_out, serial=serial) from lost
        if "lost" in answer:
            lane.end()
            raise _SessionLost(_first_line(str(answer["lost"])), timed_out=False, serial=serial)
        return answer

    def _crashes(self) -> list[tuple[Mark, SeenCrash]]:
        """What servers have told the tracker of sessions that died."""
        return [
            ((server.serial, crash.session, crash.unix_s), crash)
            for server in self._servers()
            for crash in server.recent
        ]

    def _verdict(self, candidate: str, lost: _SessionLost) -> _SessionLost | None:
        """The candidate's own fault, with its cause; None where the link or the device was at fault."""
        served = self._servers()
        if served and not any(server.ours for server in served):
            return (
                lost  # TVM's own server remembers nothing: the candidate is all there is to blame.
            )
        deadline = time.monotonic() + self._waits.verdict_s
        while not self._stopped.is_set():
            # Of this candidate only: another thread may be waiting to hear of another one's end.
            fresh = self._fresh(candidate)
            if fresh:
                return _blamed(fresh[-1], lost)
            if time.monotonic() > deadline:
                return None
            self._stopped.wait(min(0.3, self._waits.verdict_s / 4))
        return None

    def _servers(self) -> Sequence[SeenServer]:
        try:
            return self._tracker.served(self._key)
        except TransientDeviceError:
            return ()


def _blamed(cause: str, lost: _SessionLost) -> _SessionLost | None:
    """What a server's word of a session's end says of the candidate that ran in it."""
    if cause == CLIENT_GONE:
        # This host ended the session at the candidate's limit, or the link did it.
        return lost if lost.timed_out else None
    if cause == WENT_DOWN:
        return _SessionLost(
            f"the server or the device went down with it on {lost.serial}",
            timed_out=False,
            serial=lost.serial,
        )
    timed_out = lost.timed_out or cause == "timeout"
    text = "it took longer than its limit" if timed_out else f"it died of {cause}"
    return _SessionLost(f"{text} on {lost.serial}", timed_out=timed_out, serial=lost.serial)


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"
