"""Distinguishes a full disk from a program that does not compile. Drivers and compilers seldom say which it is."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from autotune.errors import RecordError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEAST_FREE_BYTES = 1 << 20


def check_disks(message: str, folders: Iterable[Path] = ()) -> None:
    """Checks for full disks after a failure that one may have caused. Returns if there is none.

    Args:
        message: Text of the failure.
        folders: Folders that it may have written to, besides the temporary folder and those of OpenCL drivers.

    Raises:
        RecordError: A disk is full; the message names the folder.
    """
    wanted = dict.fromkeys((*folders, Path(tempfile.gettempdir()), *driver_caches()))
    for folder in wanted:
        reason = why_full(folder)
        if reason:
            raise no_space(folder, reason)
    if any(os.strerror(number) in message for number in _FULL):
        names = " or ".join(map(str, wanted))
        raise no_space(names, message.strip().splitlines()[-1][-200:])


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
        hint="free some space there, or set TMPDIR, XDG_CACHE_HOME or POCL_CACHE_DIR to a folder that has it, "
        "and resume the run",
    )
