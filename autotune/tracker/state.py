"""Where a running tracker is found: a small file of this user, and what it tells."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.devices import state_root
from autotune.errors import RecordError
from autotune.reading import read_json
from autotune.tracker.watch import DeviceStatus, KeyStatus


@dataclass(frozen=True)
class FleetState:
    """A running tracker with its devices.

    Attributes:
        pid: The process that keeps it.
        started: When it was asked for, by the kernel's clock of processes; tells a pid that was given anew.
        tracker: Address as `HOST:PORT`.
        log: Its log file.
        devices: What each device does.
    """

    pid: int
    started: str
    tracker: str
    log: str
    devices: tuple[DeviceStatus, ...]

    def to_json(self) -> dict[str, Any]:
        """A plain object with lists."""
        return asdict(self)


def folder() -> Path:
    """Where a running tracker keeps its files."""
    return state_root() / "tracker"


def write(state: FleetState, where: Path | None = None) -> None:
    """Writes the state whole or not at all.

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
    """The tracker that runs; None where none does."""
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
    """Removes the file, when the tracker ends."""
    with suppress(OSError):
        ((where or folder()) / "state.json").unlink()


def process_start(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty where none runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # Z: it has ended, and nobody has asked how.


def _device(entry: dict[str, Any]) -> DeviceStatus:
    return DeviceStatus(**{**entry, "keys": tuple(KeyStatus(**key) for key in entry["keys"])})
