"""The state of a running tracker, in a small file of this user."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.errors import RecordError
from autotune.reading import read_json
from autotune.state import state_root
from autotune.tracker.watch import DeviceStatus, KeyStatus


@dataclass(frozen=True)
class FleetState:
    """A running tracker with its devices.

    Attributes:
        pid: The process that keeps it.
        started: Start time of the process by the kernel's clock, to detect a reused pid.
        tracker: Address as `HOST:PORT`.
        log: Its log file.
        devices: State of each device.
    """

    pid: int
    started: str
    tracker: str
    log: str
    devices: tuple[DeviceStatus, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns a plain object with lists."""
        return asdict(self)


def folder() -> Path:
    """Returns the folder of a running tracker's files."""
    return state_root() / "tracker"


def write(state: FleetState, where: Path | None = None) -> None:
    """Writes the state completely or not at all.

    Raises:
        RecordError: The folder cannot be written.
    """
    path = (where or folder()) / "state.json"
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(state.to_json()), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise RecordError(f"the tracker's state {path} cannot be written: {error}") from error


def read(where: Path | None = None) -> FleetState | None:
    """Returns the running tracker; None if there is none."""
    path = (where or folder()) / "state.json"
    try:
        content = read_json(path, error=RecordError)
        state = FleetState(
            content["pid"],
            content["started"],
            content["tracker"],
            content["log"],
            tuple(_device(entry) for entry in content["devices"]),
        )
    except (RecordError, ValueError, KeyError, TypeError):
        return None
    return state if process_start(state.pid) == state.started else None


def forget(where: Path | None = None) -> None:
    """Removes the file when the tracker ends."""
    with suppress(OSError):
        ((where or folder()) / "state.json").unlink()


def process_start(pid: int) -> str:
    """Returns the start time of a process, in the kernel's ticks; empty if it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # Z: a zombie, which has ended.


def _device(entry: dict[str, Any]) -> DeviceStatus:
    return DeviceStatus(**{**entry, "keys": tuple(KeyStatus(**key) for key in entry["keys"])})
