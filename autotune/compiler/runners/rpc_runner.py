"""The runner for devices behind a tracker. There may be several, and they may crash, hang or disappear."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from autotune.compiler.native import OpenCLDevice
from autotune.compiler.runners.runner import (
    COMPARE_TIMEOUT_S,
    CompareRequest,
    Comparison,
    DeviceFingerprint,
    MeasureRequest,
    comparison,
    comparison_message,
    comparison_of,
    lost_outcome,
    measured,
    measurement_message,
    outcome_of,
)
from autotune.compiler.runners.session_ends import SessionEnds, SessionLost
from autotune.compiler.runners.sessions import WAITS, Sessions, SessionWaits, SessionWorker, Tracker
from autotune.compiler.runners.stable import USUAL, Limits, StabilityWatch
from autotune.compiler.target import runtime_environment
from autotune.compiler.workers import Message, Notify, Worker, warn
from autotune.errors import ToolchainError, TransientDeviceError
from autotune.measurement import Outcome
from autotune.waits import waiting

LOGGER = logging.getLogger("autotune.devices")

_LINK_FAILURES = 5


class RpcRunner:
    """Measures on all devices that a tracker has under a key, in parallel.

    If a session is lost, the cause is determined. If the device's server saw the candidate kill it, the candidate
    is tried once more, and then quarantined. A candidate that exceeded its time limit is given up at once.
    Otherwise the link failed or the device went away, and the candidate is measured again when a device is back. No
    candidate is counted twice.

    Args:
        tracker: The tracker.
        key: Key of the devices.
        device: Fingerprint of the devices.
        make: Makes a worker; by default, a child process.
        waits: Time limits of its waits.
        limits: When a measurement counts.
    """

    apart = True
    models = False
    programs: Path | None = None

    def __init__(
        self,
        tracker: Tracker,
        key: str,
        device: DeviceFingerprint,
        *,
        make: Callable[[], SessionWorker] | None = None,
        waits: SessionWaits = WAITS,
        limits: Limits = USUAL,
    ) -> None:
        self.device = device
        self.notify: Notify = warn
        self._tracker = tracker
        self._key = key
        self._waits = waits
        self._stopped = threading.Event()
        self.give_up: Callable[[], bool] = lambda: False
        """Called while it waits for a device; returns whether the measurement is no longer wanted."""
        self._sessions = Sessions(tracker, key, make or self._process, waits, self._wanted)
        self._ends = SessionEnds(lambda: tracker.served(key), waits.verdict_s, self._stopped)
        self._steady = StabilityWatch(device.kind, limits, self._wanted)

    def _wanted(self) -> bool:
        return not (self._stopped.is_set() or self.give_up())

    def _process(self) -> Worker:
        about = {
            "host": self._tracker.host,
            "port": self._tracker.port,
            "key": self._key,
            "session_timeout_s": self._waits.session_s,
        }
        kind = "opencl" if self.device.kind.endswith("opencl") else "cpu"
        return Worker(
            "autotune.compiler.runners.rpc_worker", [kind, json.dumps(about)], runtime_environment()
        )

    def at_once(self) -> int:
        """Returns the number of devices under the key now, at least 1; see `Runner.at_once`."""
        return self._sessions.at_once()

    def start(self) -> None:
        """See `Runner.start`."""
        self._sessions.at_once()
        self._ends.forget()

    def opencl_device(self) -> OpenCLDevice | None:
        """Returns the devices' first OpenCL device, asked over a session; None if the server is not ours.

        Raises:
            TransientDeviceError: No device is free within `open_s` (30 s by default), or its session was lost.
            ToolchainError: The device has no OpenCL.
        """
        self._sessions.at_once()
        with self._sessions.one(time.monotonic() + self._waits.open_s) as session:
            serial = session.serial
            try:
                found = session.ask({"op": "opencl"}, self._waits.open_s).get("device")
            except SessionLost as lost:
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
        self._sessions.stop()

    def measure(self, request: MeasureRequest) -> Outcome:
        """See `Runner.measure`. Several threads may call it.

        Raises:
            TransientDeviceError: No device came back in time.
        """
        return outcome_of(self._steady.hold(lambda: self._measured(request)))

    def _measured(self, request: MeasureRequest) -> Outcome:
        candidate = request.library.parent.name
        message = {**measurement_message(request), "candidate": candidate}
        try:
            answer, serial = self._carried_out(message, request.data, request.timeout_s)
        except SessionLost as lost:
            return lost_outcome(lost, device=lost.serial)
        return measured(answer, request.tolerance, device=serial)

    def compare(self, request: CompareRequest) -> Comparison:
        """See `Runner.compare`.

        Raises:
            TransientDeviceError: No device came back in time.
        """
        name = "+".join(path.parent.name for path in request.libraries)
        message = {**comparison_message(request), "candidate": name}

        def compared(rest: bool = True) -> Comparison:
            answer, serial = self._carried_out(message, request.data, COMPARE_TIMEOUT_S, rest=rest)
            return comparison(answer, device=serial)

        return comparison_of(self._steady.hold(compared), lambda: compared(rest=False))

    def _carried_out(
        self, message: Message, data: Path, timeout_s: float, *, rest: bool = True
    ) -> tuple[Message, str]:
        """Returns the answer, and the device that gave it. The device may rest first. Lost links are retried.

        Raises:
            SessionLost: The candidate was at fault.
        """
        candidate, failures = message["candidate"], 0
        until = time.monotonic() + self._waits.patience_s
        while True:
            with self._sessions.one(until) as session:
                serial = session.serial
                if failures:
                    # A server that went down reports this only when it is back.
                    self._ends.late(candidate, serial)
                try:
                    if rest:
                        self._steady.rest(serial, session.look)
                    with waiting(f"{serial} to receive the inputs"):
                        session.load(data)
                    return session.ask(message, timeout_s), serial
                except SessionLost as lost:
                    reason = str(lost)
                    if self._ends.blame(candidate, lost):
                        continue
            failures += 1
            LOGGER.warning(
                "%s: session lost, not by its candidate (%s); measuring again", serial, reason
            )
            if failures >= _LINK_FAILURES:
                raise SessionLost(
                    f"the link to the device was lost {failures} times", timed_out=False, serial=serial
                )  # fmt: skip
            until = max(until, time.monotonic() + self._waits.patience_s)
