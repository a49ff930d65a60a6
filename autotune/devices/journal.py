"""The restore journal: changes to a device, written down before they are made.

A journal is a file of JSON lines, one for each device and process. An entry is flushed to disk before the change
that it undoes is made. It is crossed out when the change has been undone. An empty journal is removed. A process
holds a lock on its journal for its whole life. So an unlocked journal belongs to a process that died, and whoever
finds it undoes the changes left in it.

If two processes changed one device's clocks at once, each would take the other's clocks for the device's own and
restore those. So whoever changes clocks holds the device meanwhile, with a lock on a file beside the journals.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, get_args

from autotune.devices.device import Device
from autotune.errors import AutotuneError, DeviceError, RecordError, StableDeviceError
from autotune.state import state_root

LOGGER = logging.getLogger("autotune.devices")
_TIMEOUT_S = 15.0
_NO_SUCH_PROGRAM = 127
EMULATED_KIND = "emulated"
"""Kind of a device that lives in the process that uses it."""

Kind = Literal["write", "command", "remove", "forward", "reverse"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SETTINGS: tuple[Kind, ...] = ("write", "command")
"""Kinds of changes to the device itself. Files and ports belong to a single run."""


@dataclass(frozen=True)
class Change:
    """One change to a device, described by how to undo it.

    Attributes:
        what: The change in words, for people.
        kind: `write` puts `text` back into `path`; `command` runs `argv`; `remove` deletes `path`, a folder with
            everything in it; `forward` and `reverse` close `port`.
        path: A path on the device.
        text: The file's previous content.
        argv: A command.
        port: A port.
    """

    what: str
    kind: Kind
    path: str = ""
    text: str = ""
    argv: tuple[str, ...] = ()
    port: int = 0

    def undo(self, device: Device) -> None:
        """Undoes the change.

        Raises:
            DeviceError: The device cannot be reached, or refuses.
        """
        if self.kind == "write":
            path = PurePosixPath(self.path)
            if device.read(path, timeout=_TIMEOUT_S).decode().strip() == self.text.strip():
                return  # The change was refused, or is undone already.
            device.write(path, self.text.encode(), timeout=_TIMEOUT_S)
            held = device.read(path, timeout=_TIMEOUT_S).decode().strip()
            if held != self.text.strip():
                raise StableDeviceError(
                    f"{device.serial}: {self.path} holds '{held}' after '{self.text.strip()}' was put back"
                )
        elif self.kind == "forward":
            device.unforward(self.port, timeout=_TIMEOUT_S)
        elif self.kind == "reverse":
            device.unreverse(self.port, timeout=_TIMEOUT_S)
        else:
            argv = self.argv if self.kind == "command" else ("rm", "-rf", self.path)
            done = device.run(argv, timeout=_TIMEOUT_S)
            if done.exit_code not in (0, _NO_SUCH_PROGRAM):  # It is gone, with its effects.
                raise StableDeviceError(f"{device.serial}: `{' '.join(argv)}`: {done.complaint}")


def journals_folder() -> Path:
    """Returns the folder that contains journals."""
    return state_root() / "restore"


class Journal:
    """Changes that this process has made to one device and not yet undone.

    Args:
        device: The device.
        folder: Folder for journals.

    Raises:
        RecordError: The journal cannot be written, so nothing may be changed.
    """

    def __init__(self, device: Device, folder: Path | None = None) -> None:
        self._device = device
        self._left: dict[int, Change] = {}
        self._next = 0
        where = folder or journals_folder()
        self._path = where / f"{_slug(device.serial)}-{os.getpid()}-{id(self):x}.jsonl"
        try:
            where.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] = self._path.open("a", encoding="utf-8")
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            raise _unwritable(self._path, error) from error
        self._write({"serial": device.serial, "kind": device.kind})

    @property
    def changes(self) -> list[Change]:
        """Changes that have not been undone, oldest first."""
        return list(self._left.values())

    def change(self, number: int) -> Change:
        """Returns a change that has not been undone."""
        return self._left[number]

    def note(self, change: Change) -> int:
        """Records a change that is about to be made, and returns the number that crosses it out.

        Raises:
            RecordError: It could not be recorded, so the change must not be made.
        """
        number = self._next
        self._write({"id": number, **asdict(change)})
        self._next += 1
        self._left[number] = change
        return number

    def settle(self, number: int) -> None:
        """Crosses out a change that has been undone.

        If this cannot be written, the change may be undone again later, which does no harm.
        """
        self._left.pop(number, None)
        try:
            self._write({"undone": number})
        except RecordError as error:
            LOGGER.warning("%s", error.message)

    @contextmanager
    def changed(self, change: Change) -> Iterator[None]:
        """Records a change before a block and undoes it after the block, however the block ends.

        Raises:
            DeviceError: It could not be undone, and stays in the journal. An error that ended the block takes
                precedence.
        """
        number = self.note(change)
        try:
            yield
        except BaseException:
            try:
                change.undo(self._device)
            except DeviceError as error:
                LOGGER.warning("not yet undone: %s: %s", change.what, error.message)
            else:
                self.settle(number)
            raise
        change.undo(self._device)
        self.settle(number)

    def undo(self, kinds: Collection[Kind] = KINDS) -> list[str]:
        """Undoes remaining changes, newest first. Returns those that failed, in words; they stay in the journal.

        Args:
            kinds: Kinds of changes to undo; others are left alone.
        """
        failures = []
        for number, change in reversed(list(self._left.items())):
            if change.kind not in kinds:
                continue
            try:
                change.undo(self._device)
            except DeviceError as error:
                failures.append(f"{change.what}: {error.message}")
                continue
            self.settle(number)
        return failures

    def close(self) -> None:
        """Releases the journal. It is removed unless changes in it remain to be undone."""
        if not self._left:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for failure in self.undo():
                LOGGER.warning("not restored: %s; `autotune devices restore` tries again", failure)
        finally:
            self.close()

    def _write(self, line: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self._path, error) from error


def _slug(serial: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", serial)


@contextmanager
def held(serial: str, kind: str, folder: Path | None = None) -> Iterator[None]:
    """Holds a device for the length of a block: no other process changes its clocks meanwhile.

    The lock ends with the process. An emulated device inside a process belongs to that process and needs no lock.

    Args:
        serial: The device's serial.
        kind: How it is connected.
        folder: Folder for journals.

    Raises:
        DeviceError: Another process holds it.
        RecordError: The lock's file cannot be made.
    """
    if kind == EMULATED_KIND:
        yield
        return
    path = (folder or journals_folder()) / f"{_slug(serial)}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read().strip()
            raise DeviceError(
                f"{serial} is held by another run of autotune" + (f" (pid {who})" if who else ""),
                hint="wait until it ends, or end it; two at once would measure and restore each other's clocks",
            ) from error
        except OSError as error:
            raise _unwritable(path, error) from error
        with suppress(OSError):  # The disk is full: the lock holds without its owner's number.
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield


def _unwritable(path: Path, error: OSError) -> RecordError:
    return RecordError(
        f"the restore journal {path} cannot be written: {error}",
        hint="free space there, or set XDG_STATE_HOME; no device is changed without it",
    )


@dataclass(frozen=True)
class LeftBehind:
    """Changes that a dead process has left on a device, oldest first."""

    path: Path
    serial: str
    kind: str
    changes: tuple[tuple[int, Change], ...]

    @property
    def of_clocks(self) -> bool:
        """Whether a setting of the device is among them, not only files and ports."""
        return any(change.kind in SETTINGS for _, change in self.changes)


def left_behind(folder: Path | None = None) -> list[LeftBehind]:
    """Returns the journals of dead processes. Those of living processes are left alone."""
    found = []
    for path in sorted((folder or journals_folder()).glob("*.jsonl")):
        with suppress(OSError), path.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = _read(path, file.read())
            if journal.serial:  # Otherwise its owner is just about to write the first line.
                found.append(journal)
    return found


def without_models(left: Sequence[LeftBehind]) -> list[LeftBehind]:
    """Returns the changes on devices that may still exist.

    An emulated device inside a process died with it. There is nothing to undo, and its journal is removed.
    """
    for journal in left:
        if journal.kind == EMULATED_KIND:
            journal.path.unlink(missing_ok=True)
    return [journal for journal in left if journal.kind != EMULATED_KIND]


def _read(path: Path, text: str) -> LeftBehind:
    """Reads a journal. If a crash cut a line off, its change was not made."""
    serial = kind = ""
    left: dict[int, Change] = {}
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            if "serial" in entry:
                serial, kind = str(entry["serial"]), str(entry["kind"])
            elif "undone" in entry:
                left.pop(int(entry["undone"]), None)
            else:
                number = int(entry.pop("id"))
                left[number] = Change(**{**entry, "argv": tuple(entry["argv"])})
        except (ValueError, KeyError, TypeError):
            LOGGER.warning("%s: a line is damaged and was skipped: %s", path, line[:80])
    return LeftBehind(path, serial, kind, tuple(left.items()))


def restore(
    left: Sequence[LeftBehind],
    reach: Callable[[str, str], Device],
    folder: Path | None = None,
) -> Iterator[tuple[LeftBehind, list[str]]]:
    """Undoes changes left by dead processes. Yields each journal with the changes that could not be undone.

    Args:
        left: The result of `left_behind`.
        reach: Returns the device of a serial and kind.
        folder: Folder for journals.
    """
    for journal in left:
        failures: list[str] = []
        kept: list[tuple[int, Change]] = []
        try:
            device = reach(journal.serial, journal.kind)
            with held(journal.serial, journal.kind, folder) if journal.of_clocks else nullcontext():
                for number, change in reversed(journal.changes):
                    try:
                        change.undo(device)
                    except DeviceError as error:
                        failures.append(f"{change.what}: {error.message}")
                        kept.append((number, change))
        except AutotuneError as error:
            yield journal, [error.message]
            continue
        if kept:
            # Remaining changes are recorded again under this process's name. The old file is removed once the new
            # one exists.
            again = Journal(device, folder)
            for _, change in reversed(kept):
                again.note(change)
            again.close()
        journal.path.unlink(missing_ok=True)
        yield journal, failures
