"""A run's folder: `run.json`, `events.jsonl`, TVM's two database files and `result.json`."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import reading
from autotune.errors import RecordError, UsageError
from autotune.reading import Unreadable
from autotune.records.events import check_about, check_event
from autotune.records.json_form import json_text
from autotune.records.lines import LineFile, cut_torn_line, disk_error, read_lines
from autotune.records.result import Result
from autotune.records.run_kinds import how_to_end
from autotune.records.run_paths import is_run

RUN_SCHEMA_VERSION = 1
_RUN, _EVENTS, _RESULT, _LOCK = "run.json", "events.jsonl", "result.json", "run.lock"
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file completely or not at all.

    Raises:
        RecordError: It cannot be written, or the value has a number that JSON does not allow.
    """
    write_text(path, json_text(value, 2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file completely or not at all.

    Raises:
        RecordError: It cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise disk_error(path, error) from error


def read_json(path: Path) -> Any:
    """Reads a JSON file; NaN and Infinity, which earlier versions could write, are null.

    Raises:
        RecordError: It cannot be read, is damaged, or exceeds the limits of `autotune.reading.DOCUMENT`.
    """
    return reading.read_json(path, error=RecordError, nan_as_null=True)


@dataclass(frozen=True)
class Run:
    """A run read from disk.

    Attributes:
        path: Its folder.
        about: Content of `run.json`: request, versions, device, seed, git revision.
        events: Every event, in order.
        result: Content of `result.json`; None until the run has ended.
    """

    path: Path
    about: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    result: dict[str, Any] | None

    def trials(self) -> list[dict[str, Any]]:
        """Returns the events that are trials."""
        return [event for event in self.events if event["event"] == "trial"]

    def knew(self) -> int:
        """Returns the number of kernels with schedules in the records that a finished run began with."""
        with reading.reading(self.path / _RESULT):
            return int(((self.result or {}).get("records") or {}).get("equal", 0))

    def kernel_result(self) -> Result:
        """Returns the result of a finished kernel run.

        Raises:
            RecordError: `result.json` is damaged, missing or from another command.
        """
        with reading.reading(self.path / _RESULT):
            return Result.from_json(self.result or {})

    def ended(self) -> dict[str, Any]:
        """Returns content of `result.json`.

        Raises:
            UsageError: The run has not ended.
        """
        if self.result is None:
            raise UsageError(f"{self.path} has not ended", hint=how_to_end(self.path, self.about))
        return self.result


def read_run(path: Path) -> Run:
    """Reads a run, finished or not, without changing it.

    Raises:
        UsageError: There is no run at that path.
        RecordError: A file of it is damaged.
    """
    if not is_run(path):
        raise UsageError(
            f"no run at {path}: it has no file {_RUN}",
            hint="give a folder that a run has made in logs/",
        )
    about = read_json(path / _RUN)
    if not isinstance(about, dict) or not reading.is_version(
        about.get("schema_version"), RUN_SCHEMA_VERSION
    ):
        raise RecordError(f"{path / _RUN} is not a run of schema version {RUN_SCHEMA_VERSION}")
    with reading.reading(path / _RUN):
        check_about(about)
    events = read_lines(path / _EVENTS) if (path / _EVENTS).exists() else []
    command = str(about.get("request", {}).get("kind"))
    for number, event in enumerate(events, start=1):
        try:
            check_event(event, command)
        except Unreadable as error:
            raise RecordError(
                f"{path / _EVENTS}: line {number} is damaged: {error}",
                hint=f"delete line {number} to continue without that record",
            ) from None
        except RecordError as error:
            raise RecordError(
                f"{path / _EVENTS}: line {number}: {error.message}", hint=error.hint
            ) from None
    result = read_json(path / _RESULT) if (path / _RESULT).exists() else None
    if result is not None and not isinstance(result, dict):
        raise RecordError(f"{path / _RESULT} is damaged: it is not an object")
    return Run(path, about, tuple(events), result)


class RunFolder:
    """A run open for writing, by one process at a time.

    Use `create` or `reopen`. As a context manager, it releases the lock at the end.

    Attributes:
        path: The folder.
        listeners: Functions that are called with each event after it is written.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.listeners: list[Callable[[Mapping[str, Any]], None]] = []
        self._lock = lock
        self._events = LineFile(path / _EVENTS)
        self._workloads = LineFile(path / _WORKLOADS)
        self._records = LineFile(path / _RECORDS)

    @classmethod
    def create(cls, parent: Path, name: str, about: dict[str, Any]) -> RunFolder:
        """Makes `parent/<utc>-<name>/` with its `run.json`. The name is changed to be valid for a folder.

        Raises:
            UsageError: The folder cannot be made there.
            RecordError: The disk is full; no folder is left.
        """
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        name = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
        for suffix in ("", *(f"-{number}" for number in range(2, 100))):
            path = parent / f"{stamp}-{name}{suffix}"
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(
                    f"cannot make a run folder in {parent}: {error.strerror}",
                    hint="give a writable folder with --logs",
                ) from error
            try:
                lock = _lock(path)
                write_json(path / _RUN, {"schema_version": RUN_SCHEMA_VERSION, **about})
                return cls(path, lock)
            except RecordError:
                shutil.rmtree(path, ignore_errors=True)  # Nothing could be resumed.
                raise
        raise UsageError(f"too many runs of this second in {parent}")

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Opens a run to resume it. A record that a kill cut short is removed.

        Raises:
            UsageError: There is no run at that path, or its folder contains a link, through which files elsewhere
                would be written.
            RecordError: Another process works on it, or a file of it is damaged.
        """
        check_own_files(path)
        read_run(path)
        lock = _lock(path)
        for name in (_EVENTS, _WORKLOADS, _RECORDS):
            cut_torn_line(path / name)
        return cls(path, lock)

    def event(self, kind: str, **fields: Any) -> None:
        """Appends one event with the time, in seconds since the epoch.

        Raises:
            RecordError: It could not be written; the file keeps its earlier lines.
        """
        now = datetime.now(UTC).timestamp()
        event = {"event": kind, "time": round(now, 3), **fields}
        self._events.append(event)
        for listener in self.listeners:
            listener(event)

    def raw(self, records: Sequence[str]) -> str | None:
        """Writes raw records of a device as one file of `raw/`, and returns its name; None if there are no records.

        Raises:
            RecordError: It could not be written.
        """
        if not records:
            return None
        folder = self.path / "raw"
        try:
            folder.mkdir(exist_ok=True)
            name = f"{len(list(folder.iterdir())):05d}.jsonl"
            (folder / name).write_text("".join(records), encoding="utf-8")
        except OSError as error:
            raise disk_error(folder, error) from error
        return name

    def database_workload(self, record: Any) -> None:
        """Appends a line to TVM's workload file."""
        self._workloads.append(record)

    def database_record(self, index: int, record: Any) -> None:
        """Appends a valid trial of the workload with this index to TVM's record file."""
        self._records.append([index, record])

    def clear_database(self) -> None:
        """Empties TVM's two files, so that they can be rewritten from the events."""
        self._workloads.clear()
        self._records.clear()

    def result(self, content: dict[str, Any]) -> None:
        """Writes `result.json`."""
        write_json(self.path / _RESULT, content)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._events, self._workloads, self._records):
            file.close()
        os.close(self._lock)


def check_own_files(path: Path) -> None:
    """Refuses a run's folder that contains anything other than its own files and folders.

    Raises:
        UsageError: It contains a link, a pipe or a device.
    """
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            mode = Path(folder, name).lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UsageError(
                    f"{Path(folder, name)} is a link, a pipe or a device, not a file",
                    hint="a run's folder has none; replace it by what it leads to, or remove it",
                )


def _lock(path: Path) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(path / _LOCK, flags, 0o644)
    except OSError as error:
        raise disk_error(path / _LOCK, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise RecordError(
            f"run {path} is in use by another process", hint="wait for it to end, or stop it"
        ) from error
    return handle
