"""Append-only files with one JSON object on each line, safe against kill -9 and a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from autotune.errors import RecordError
from autotune.reading import LINES, Unreadable, lines, open_file
from autotune.records.json_form import json_text
from autotune.records.run_paths import is_run

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_error(path: Path, error: OSError) -> RecordError:
    """Returns the error for a failed write. It names a full disk, and how to continue a run that was begun."""
    if error.errno in _FULL and is_run(path.parent):
        return RecordError(
            f"{path}: the disk is full; every line before this one is intact",
            hint=f"free some space, then continue with --resume {path.parent}",
        )
    if error.errno in _FULL:
        return RecordError(
            f"{path}: the disk is full", hint="free some space, then run the same command again"
        )
    return RecordError(f"{path} cannot be written: {error.strerror}")


class LineFile:
    """A JSON-lines file open for appending.

    Args:
        path: The file; made if it is missing.

    Raises:
        RecordError: It cannot be opened for writing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o644)
        except OSError as error:
            raise disk_error(path, error) from error

    def append(self, value: Any) -> None:
        """Writes one complete line, or leaves the file unchanged.

        Raises:
            RecordError: The disk is full or the write failed; a written part is cut off again. Or the value has a
                number that JSON does not allow.
        """
        data = (json_text(value) + "\n").encode()
        size = os.fstat(self._fd).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise disk_error(self.path, error) from error

    def clear(self) -> None:
        """Removes all lines."""
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        os.close(self._fd)


def read_lines(path: Path) -> list[Any]:
    """Reads all lines. A last line without its newline was cut short by a kill and is left out.

    Raises:
        RecordError: The file is missing, or a line is damaged, or the file exceeds the limits of
            `autotune.reading.LINES`; the message has the line's number.
    """
    values = []
    with open_file(path, RecordError) as file:
        try:
            for _, value in lines(file, torn_end=True):
                values.append(value)
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}") from error
        except Unreadable as error:
            line = f"line {len(values) + 1}"
            hint = f"delete {line} to continue without that record" if line in str(error) else ""
            raise RecordError(f"{path}: {error}", hint=hint) from None
    return values


def cut_torn_line(path: Path) -> bool:
    """Cuts off a last line without a newline, and returns whether there was one."""
    if not path.exists():
        return False
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LINES.line_bytes))
        end = file.read(LINES.line_bytes)
        if not end or end.endswith(b"\n"):
            return False
        file.truncate(size - len(end) + end.rfind(b"\n") + 1)
    return True
