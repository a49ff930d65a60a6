"""The files of an emulated kernel, answered by the live model."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

_FOLDER_MODE = 0o755


@dataclass(frozen=True)
class KernelFile:
    """A file that a driver answers.

    Attributes:
        read: Returns its present content.
        write: Accepts written data; None if the driver accepts none. Raises OSError.
        mode: Permission bits; the file belongs to root.
    """

    read: Callable[[], str]
    write: Callable[[str], None] | None = None
    mode: int = 0o444


def refused(number: int, path: str) -> OSError:
    """Returns an error in the kernel's form."""
    return OSError(number, os.strerror(number), path)


class KernelTree:
    """A `tree.Tree` over the files of the drivers, as one user sees it.

    Args:
        files: Files by absolute path.
        privileged: Whether the caller is root. Other users are restricted by the permission bits.
        writable: Called before each write. False refuses the write with EACCES even to root, as SELinux does.
    """

    def __init__(
        self,
        files: Mapping[str, KernelFile],
        *,
        privileged: bool = True,
        writable: Callable[[], bool] = lambda: True,
    ) -> None:
        self._files = dict(files)
        self._privileged = privileged
        self._writable = writable
        self._folders: dict[str, set[str]] = {"/": set()}
        for path in self._files:
            while path != "/":
                folder, _, name = path.rpartition("/")
                self._folders.setdefault(folder or "/", set()).add(name)
                path = folder or "/"

    def as_user(self, privileged: bool) -> KernelTree:
        """Returns the same files as root sees them, or as any other user does."""
        return KernelTree(self._files, privileged=privileged, writable=self._writable)

    def paths(self) -> tuple[str, ...]:
        """Returns all files, sorted."""
        return tuple(sorted(self._files))

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """See `Tree.kind`."""
        path = _plain(path)
        if path in self._files:
            return "file"
        return "folder" if path in self._folders else None

    def names(self, path: str) -> list[str]:
        """See `Tree.names`."""
        path = _plain(path)
        if path in self._files:
            raise refused(errno.ENOTDIR, path)
        if path not in self._folders:
            raise refused(errno.ENOENT, path)
        return sorted(self._folders[path])

    def mode(self, path: str) -> int:
        """See `Tree.mode`."""
        path = _plain(path)
        if path in self._folders:
            return _FOLDER_MODE
        return self._file(path).mode

    def read(self, path: str) -> bytes:
        """See `Tree.read`."""
        path = _plain(path)
        file = self._file(path)
        if not self._privileged and not file.mode & 0o004:
            raise refused(errno.EACCES, path)
        return file.read().encode()

    def reader(self, path: str) -> Callable[[], str] | None:
        """Returns the driver's own function that reads a file.

        Returns None if this user may not read it, or it does not exist.
        """
        file = self._files.get(_plain(path))
        allowed = file is not None and (self._privileged or file.mode & 0o004)
        return file.read if file is not None and allowed else None

    def write(self, path: str, data: bytes) -> None:
        """See `Tree.write`."""
        path = _plain(path)
        file = self._file(path)
        allowed = self._privileged or file.mode & 0o002
        # A driver without a write function refuses root as well.
        if file.write is None or not allowed or not self._writable():
            raise refused(errno.EACCES, path)
        try:
            file.write(data.decode("ascii").strip())
        except OSError as error:
            raise refused(error.errno or errno.EIO, path) from None
        except ValueError:
            raise refused(errno.EINVAL, path) from None

    def _file(self, path: str) -> KernelFile:
        if path in self._folders:
            raise refused(errno.EISDIR, path)
        if path not in self._files:
            raise refused(errno.ENOENT, path)
        return self._files[path]


@lru_cache(4096)
def _plain(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part)
