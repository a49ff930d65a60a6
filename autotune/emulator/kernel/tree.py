"""The interface to the files of an emulated kernel: reading paths, and writing with the kernel's refusals."""

from __future__ import annotations

from typing import Literal, Protocol


class Tree(Protocol):
    """Files below `/sys` (and some of `/proc`) as the emulated kernel answers them at the moment of the call.

    Paths are absolute, such as `/sys/devices/system/cpu/online`. Operations that a real kernel refuses are refused
    with an `OSError` of the same `errno`.
    """

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """Returns the kind of a path; None if it does not exist."""

    def names(self, path: str) -> list[str]:
        """Returns names in a folder. Raises OSError: ENOENT, ENOTDIR."""

    def mode(self, path: str) -> int:
        """Returns the permission bits of a path, such as 0o644. Raises OSError: ENOENT."""

    def read(self, path: str) -> bytes:
        """Returns a file's present content. Raises OSError: ENOENT, EISDIR, EACCES, EIO."""

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as one `write(2)` does. Raises OSError: ENOENT, EACCES, EPERM, EINVAL, EBUSY."""
