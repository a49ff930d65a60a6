"""Temporary folders that are removed with their process, however it ends.

A process holds a lock on each of its folders, and the lock ends with the process. So an unlocked folder was left by
a killed process, and is removed. This sweep happens whenever a new folder is made.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

# `tempfile.mkdtemp` adds eight characters. Names without a process number come from earlier versions.
_SHARED = re.compile(r"autotune-[a-z]+-\d+-\w{8}", re.ASCII)
_BESIDE = re.compile(r"\.[a-z]+-(\d+-)?\w{8}", re.ASCII)
_LIVE: set[Scratch] = set()


class Scratch:
    """A new private folder, removed when it is closed, or by a later process if this one is killed.

    Args:
        purpose: Its purpose: a word in lower case that becomes part of its name.
        beside: A folder of the project to make it in, so that finished files can simply be renamed; None for the
            system's temporary folder.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, purpose: str, beside: Path | None = None) -> None:
        sweep(purpose, beside)
        where = Path(tempfile.gettempdir()) if beside is None else beside
        prefix = f"autotune-{purpose}-" if beside is None else f".{purpose}-"
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=where))
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # It was swept before it was locked.
            with suppress(OSError):  # A file system without locks: no sweeps there.
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():
                break
            os.close(self._lock)
        _LIVE.add(self)

    def close(self) -> None:
        """Removes the folder. Files moved elsewhere stay. It may be called again."""
        if self in _LIVE:
            _LIVE.discard(self)
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def abandon() -> None:
    """Removes all folders of this process, which is about to end immediately."""
    for one in list(_LIVE):
        shutil.rmtree(one.path, ignore_errors=True)


def sweep(purpose: str = "", beside: Path | None = None) -> None:
    """Removes the folders that killed processes have left.

    Args:
        purpose: The purpose of the folders to remove in `beside`.
        beside: A folder to sweep in addition to the system's temporary one.
    """
    _sweep(Path(tempfile.gettempdir()), "autotune-", _SHARED)
    if beside is not None:
        _sweep(beside, f".{purpose}-", _BESIDE)


def _sweep(where: Path, prefix: str, names: re.Pattern[str]) -> None:
    with suppress(OSError):
        for path in where.iterdir():
            if path.name.startswith(prefix) and names.fullmatch(path.name):
                _remove_unowned(path)


def _remove_unowned(path: Path) -> None:
    """Removes a folder of this user if no process has locked it."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(folder).st_uid == os.getuid():
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(folder)
