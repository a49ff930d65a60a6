"""Files pushed to an emulated device. They are kept in memory, on a disk of limited size."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from autotune.emulator.kernel.kernel import refused

_FOLDER_MODE = 0o771


@dataclass
class _Stored:
    data: bytearray
    mode: int


class MemoryFiles:
    """A small file system: a `tree.Tree` that can also make and remove files.

    Args:
        disk_bytes: Its size; folders take no space.
    """

    def __init__(self, disk_bytes: int) -> None:
        self.disk_bytes = disk_bytes
        self._files: dict[str, _Stored] = {}
        self._folders: set[str] = {"/"}

    @property
    def free_bytes(self) -> int:
        """Remaining space."""
        return self.disk_bytes - sum(len(file.data) for file in self._files.values())

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """See `Tree.kind`."""
        if path in self._files:
            return "file"
        return "folder" if path in self._folders else None

    def names(self, path: str) -> list[str]:
        """See `Tree.names`."""
        if path in self._files:
            raise refused(errno.ENOTDIR, path)
        if path not in self._folders:
            raise refused(errno.ENOENT, path)
        start = path.rstrip("/") + "/"
        found = {p[len(start) :].partition("/")[0] for p in self._below(start)}
        return sorted(found - {""})

    def mode(self, path: str) -> int:
        """See `Tree.mode`."""
        if path in self._folders:
            return _FOLDER_MODE
        return self._file(path).mode

    def read(self, path: str) -> bytes:
        """See `Tree.read`."""
        return bytes(self._file(path).data)

    def write(self, path: str, data: bytes) -> None:
        """See `Tree.write`; raises ENOSPC as well."""
        self.store(path, data, self._file(path).mode)

    def store(self, path: str, data: bytes, mode: int) -> None:
        """Makes or replaces a file, and its parent folders.

        Raises:
            OSError: ENOSPC, EISDIR, or ENOTDIR if a file is in the way.
        """
        if path in self._folders:
            raise refused(errno.EISDIR, path)
        old = self._files.get(path)
        if len(data) > self.free_bytes + (len(old.data) if old else 0):
            raise refused(errno.ENOSPC, path)
        self.make_folder(path.rpartition("/")[0] or "/")
        self._files[path] = _Stored(bytearray(data), mode)

    def append(self, path: str, data: bytes) -> None:
        """Appends to an existing file; may also raise ENOSPC."""
        file = self._file(path)
        if len(data) > self.free_bytes:
            raise refused(errno.ENOSPC, path)
        file.data += data

    def make_folder(self, path: str) -> None:
        """Makes a folder and its parents.

        Raises:
            OSError: ENOTDIR if a file is in the way.
        """
        parts = path.strip("/").split("/") if path.strip("/") else []
        for end in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:end])
            if folder in self._files:
                raise refused(errno.ENOTDIR, folder)
            self._folders.add(folder)

    def chmod(self, path: str, mode: int) -> None:
        """Sets a file's permission bits. A folder's bits do not change.

        Raises:
            OSError: ENOENT.
        """
        if path not in self._folders:
            self._file(path).mode = mode

    def move(self, source: str, target: str) -> None:
        """Renames a file, and replaces an existing target.

        Raises:
            OSError: ENOENT, EISDIR, ENOTDIR.
        """
        file = self._file(source)
        if target in self._folders:
            raise refused(errno.EISDIR, target)
        self.make_folder(target.rpartition("/")[0] or "/")
        del self._files[source]
        self._files[target] = file

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with everything in it. Nothing happens if it does not exist."""
        self._files.pop(path, None)
        start = path.rstrip("/") + "/"
        for below in self._below(start):
            self._files.pop(below, None)
            self._folders.discard(below)
        if path != "/":
            self._folders.discard(path)

    def _below(self, start: str) -> list[str]:
        return [p for p in [*self._files, *self._folders] if p.startswith(start)]

    def _file(self, path: str) -> _Stored:
        if path in self._folders:
            raise refused(errno.EISDIR, path)
        if path not in self._files:
            raise refused(errno.ENOENT, path)
        return self._files[path]
