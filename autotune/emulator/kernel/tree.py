"""The files of an emulated kernel: what a path holds, and what a write to it does or is refused for."""

from __future__ import annotations

from typing import Literal, Protocol


class Tree(Protocol):
    """Files below `/sys` (and some of `/proc`) as the emulated kernel answers them, at the moment of the call.

    Paths are absolute, such as `/sys/devices/system/cpu/online`. Whatever a real kernel refuses is refused with an
    `OSError` of the same `errno`.
    """

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """What a path is; None where there is nothing."""

    def names(self, path: str) -> list[str]:
        """Names in a folder. Raises OSError: ENOENT, ENOTDIR."""

    def mode(self, path: str) -> int:
        """Permission bits of a path, such as 0o644. Raises OSError: ENOENT."""

    def read(self, path: str) -> bytes:
        """A file's content now. Raises OSError: ENOENT, EISDIR, EACCES, EIO."""

    def write(self, path: str, data: bytes) -> None:
        """Writes a file as one `write(2)` does. Raises OSError: ENOENT, EACCES, EPERM, EINVAL, EBUSY."""
