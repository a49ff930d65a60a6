"""Temporary folders that are removed with their process, however it ends.

A process holds a lock on each of its folders, and the lock ends with the process. So an unlocked folder was left by
a killed process, and is removed. This sweep happens whenever a new folder is made. A folder outside the system's
temporary one has a note in the state folder, locked likewise, by which a sweep finds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from autotune.state import state_root

# `tempfile.mkdtemp` adds eight characters. Names without a process number come from earlier versions.
_SHARED = re.compile(r"autotune-[a-z]+-\d+-\w{8}", re.ASCII)
_BESIDE = re.compile(r"\.[a-z]+-(\d+-)?\w{8}", re.ASCII)
_LIVE: set[Scratch] = set()


class Scratch:
    """A new private folder, removed when it is closed, or by a later process if this one is killed.

    Args:
        purpose: Its purpose: a word in lower case that becomes part of its name.
        beside: A folder of the project to make it in, so that finished files can simply be renamed; None for the
            system's temporary folder. If it is missing, it is made, and removed again if it stays empty.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, purpose: str, beside: Path | None = None) -> None:
        sweep(purpose, beside)
        self._note = None if beside is None else _Note.of(purpose, beside.absolute())
        try:
            self._make(purpose, beside)
        except BaseException:
            self._forget()
            raise
        _LIVE.add(self)

    def _make(self, purpose: str, beside: Path | None) -> None:
        if beside is not None:
            beside.mkdir(parents=True, exist_ok=True)
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

    def close(self) -> None:
        """Removes the folder. Files moved elsewhere stay. It may be called again."""
        if self in _LIVE:
            _LIVE.discard(self)
            self.remove()
            os.close(self._lock)

    def remove(self) -> None:
        """Removes the folder, and the folders that were made for it if they are empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._forget()

    def _forget(self) -> None:
        if self._note is not None:
            self._note.settle()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def abandon() -> None:
    """Removes all folders of this process, which is about to end immediately."""
    for one in list(_LIVE):
        one.remove()


class _Note:
    """A note that a folder of the project has scratch folders, with the folders that were made for them.

    Args:
        file: The note's file.
        lock: Descriptor of the open file, which is locked.
    """

    def __init__(self, file: Path, lock: int) -> None:
        self._file, self._lock = file, lock

    @classmethod
    def of(cls, purpose: str, beside: Path) -> _Note | None:
        """Writes a note; None if the state folder cannot be written, so that a kill leaves the folder."""
        made = [str(one) for one in (beside, *beside.parents) if not one.exists()]
        text = json.dumps({"purpose": purpose, "beside": str(beside), "made": made})
        folder = _notes()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            while True:
                lock, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", dir=folder)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if Path(name).exists():  # It was not swept before it was locked.
                    os.write(lock, text.encode())
                    return cls(Path(name), lock)
                os.close(lock)
        return None

    @classmethod
    def left(cls, file: Path) -> _Note | None:
        """Returns the note of a process that has ended; None if it still runs, or if the note is gone."""
        with suppress(OSError):
            lock = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise
            return cls(file, lock)
        return None

    def clean(self) -> None:
        """Removes the scratch folders that the note names, if their processes have ended."""
        with suppress(ValueError, KeyError, TypeError):
            content = json.loads(self._file.read_bytes())
            _sweep(Path(content["beside"]), f".{content['purpose']}-", _BESIDE)
        self.settle()

    def settle(self) -> None:
        """Removes the folders that were made if they are empty, and the note."""
        with suppress(ValueError, KeyError, TypeError, OSError):
            for one in json.loads(self._file.read_bytes())["made"]:
                Path(one).rmdir()
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
        os.close(self._lock)


def _notes() -> Path:
    return state_root() / "scratch"


def sweep(purpose: str = "", beside: Path | None = None) -> None:
    """Removes the folders that killed processes have left.

    Args:
        purpose: The purpose of the folders to remove in `beside`.
        beside: A folder to sweep in addition to the system's temporary one.
    """
    _sweep(Path(tempfile.gettempdir()), "autotune-", _SHARED)
    if beside is not None:
        _sweep(beside, f".{purpose}-", _BESIDE)
    with suppress(OSError):
        for file in _notes().iterdir():
            if (note := _Note.left(file)) is not None:
                note.clean()


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
