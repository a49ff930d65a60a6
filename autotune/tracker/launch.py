"""Starts the tracker's process in the background, and ends it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from autotune.errors import RecordError, ToolchainError, UsageError
from autotune.tracker import state
from autotune.tracker.state import FleetState
from autotune.tracker.supervisor import STOP_S, UpRequest

_GRACE_S = 10.0
_TAIL_LINES = 5


def log_file() -> Path:
    """Returns the path of the background process's log."""
    return state.folder() / "tracker.log"


def start(request: UpRequest, *, timeout: float) -> FleetState:
    """Starts the process, and waits until every device serves or is given up for now.

    Raises:
        ToolchainError: The process ended at once; its log contains the reason.
        RecordError: The state folder cannot be written.
        UsageError: Another tracker runs, or is being started.
    """
    folder = state.folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "up.lock").open("w", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{folder} cannot be written: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError("a tracker is being started already") from error
        running = state.read()
        if running is not None:
            raise runs_already(running)
        return _start(request, folder, timeout)


def runs_already(running: FleetState) -> UsageError:
    """Returns the error for a tracker that already runs."""
    return UsageError(
        f"a tracker runs already at {running.tracker}", hint="`autotune tracker down` ends it"
    )


def _start(request: UpRequest, folder: Path, timeout: float) -> FleetState:
    asked = folder / "request.json"
    try:
        asked.write_text(json.dumps(request.to_json()), encoding="utf-8")
        log = log_file().open("ab")
    except OSError as error:
        raise RecordError(f"{folder} cannot be written: {error}") from error
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "autotune.tracker.supervisor", str(asked)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout
    try:
        while True:
            found = state.read()
            ready = found is not None and all(
                one.state in ("serving", "lost") for one in found.devices
            )
            if found is not None and (ready or time.monotonic() > deadline):
                return found
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolchainError(f"the tracker did not start:\n{_tail()}")
            time.sleep(0.2)
    except BaseException:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        raise


def stop(running: FleetState) -> bool:
    """Ends the process, and returns whether every device was restored."""
    with suppress(ProcessLookupError):
        os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S + _GRACE_S
    while state.process_start(running.pid) == running.started:
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)
            state.forget()
            return False
        time.sleep(0.1)
    state.forget()
    from autotune.devices import left_behind

    serials = {device.serial for device in running.devices}
    return not any(left.serial in serials and left.changes for left in left_behind())


def _tail() -> str:
    lines = log_file().read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
