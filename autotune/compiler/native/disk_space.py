"""Distinguishes a full disk from a program that does not compile. Drivers and compilers seldom say which it is."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import RecordError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAYINGS = tuple(map(os.strerror, _FULL))
_LEAST_FREE_BYTES = 1 << 20


def check_disks(message: str, folders: Iterable[Path] = ()) -> None:
    """Checks for full disks after a failure that one may have caused. Returns if there is none.

    Args:
        message: Text of the failure.
        folders: Folders that it may have written to, besides the temporary folder and those of OpenCL drivers.

    Raises:
        RecordError: A disk is full; the message names the folder.
    """
    temporary = _temporary_folders()
    others = [one for one in folders if not any(map(one.is_relative_to, temporary))]
    wanted = dict.fromkeys((*temporary, *others, *driver_caches()))
    check_room(*wanted)
    full = [line for line in message.splitlines() if any(map(line.__contains__, _SAYINGS))]
    if full:
        # What was written was removed since. The line may name a file; otherwise the fullest disk was it.
        named = (one for one in wanted if re.search(rf"(?<![\w/]){re.escape(str(one))}/", full[-1]))
        raise no_space(next(named, min(wanted, key=_free_bytes)), full[-1].strip()[-200:])


def check_room(*folders: Path) -> None:
    """Checks for full disks before work that cannot say so, such as LLVM's. Returns if there is none.

    Args:
        folders: Folders to check besides the temporary folder.

    Raises:
        RecordError: A disk is full; the message names the folder.
    """
    for folder in (*_temporary_folders(), *folders):
        if reason := why_full(folder):
            raise no_space(folder, reason)


def _temporary_folders() -> list[Path]:
    """Returns the folder that compilers use, and Python's, which is another one if that cannot be written."""
    chosen = os.environ.get("TMPDIR")
    return [Path(one) for one in dict.fromkeys((chosen, tempfile.gettempdir())) if one]


def _free_bytes(folder: Path) -> int:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def why_full(folder: Path) -> str:
    """Returns why a folder has no space for 1 MiB; empty if it has, or cannot be written for another reason."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_FREE_BYTES))
    except OSError as error:
        return (error.strerror or str(error)) if error.errno in _FULL else ""
    return ""


def driver_caches() -> list[Path]:
    """Returns the folders where OpenCL drivers keep compiled programs."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(os.environ.get("POCL_CACHE_DIR") or caches / "pocl"), caches]


def no_space(folder: Path | str, reason: object) -> RecordError:
    """Returns the error for a folder on a full disk."""
    return RecordError(
        f"the disk of {folder} is full: {reason}",
        hint="free some space there, or set TMPDIR, XDG_CACHE_HOME or POCL_CACHE_DIR to a folder that has it; then "
        "run the command again, or resume the run",
    )
