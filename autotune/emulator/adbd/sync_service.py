"""adb's file service, version 1. It runs in the phone, as the same user as the daemon's commands."""

from __future__ import annotations

import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_HEAD = struct.Struct("<4sI")
_MOST_IN_ONE_CHUNK = 1 << 16
_LONGEST_PATH = 1024


class _LinkEndedError(Exception):
    """The host has gone, or sends invalid data."""


class SyncService:
    """Serves one stream of `sync:`.

    Args:
        link: The stream.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def serve(self) -> None:
        """Serves until the host ends the service or is gone."""
        with suppress(_LinkEndedError, OSError):
            while True:
                kind, size = _HEAD.unpack(self._exactly(_HEAD.size))
                if kind == b"QUIT":
                    return
                if size > _LONGEST_PATH:
                    self._fail("path too long")
                    return
                name = self._exactly(size).decode(errors="surrogateescape")
                if kind == b"STAT":
                    self._stat(name)
                elif kind == b"LIST":
                    self._list(name)
                elif kind == b"RECV":
                    self._give(name)
                elif kind == b"SEND":
                    self._take(name)
                else:
                    self._fail(f"unknown command '{kind.decode(errors='replace')}'")
                    return

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._link.recv(size - len(data))
            if not part:
                raise _LinkEndedError
            data += part
        return data

    def _fail(self, reason: str) -> None:
        data = reason.encode(errors="surrogateescape")
        self._link.sendall(_HEAD.pack(b"FAIL", len(data)) + data)

    def _stat(self, name: str) -> None:
        self._link.sendall(b"STAT" + _figures(name))

    def _list(self, name: str) -> None:
        try:
            entries = os.listdir(name)  # noqa: PTH208  (plain names)
        except OSError:
            entries = []
        for entry in entries:
            data = entry.encode(errors="surrogateescape")
            figures = _figures(f"{name}/{entry}")
            self._link.sendall(b"DENT" + figures + struct.pack("<I", len(data)) + data)
        self._link.sendall(b"DONE" + bytes(16))

    def _give(self, name: str) -> None:
        try:
            with Path(name).open("rb", buffering=0) as file:
                while data := file.read(_MOST_IN_ONE_CHUNK):
                    self._link.sendall(_HEAD.pack(b"DATA", len(data)) + data)
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            self._fail(f"open failed: {error.strerror}")
            return
        self._link.sendall(_HEAD.pack(b"DONE", 0))

    def _take(self, request: str) -> None:
        name, _, digits = request.rpartition(",")
        mode = int(digits) if digits.isdecimal() else stat.S_IFREG | 0o644
        chunks = self._chunks()
        try:
            Path(name).parent.mkdir(mode=0o775, parents=True, exist_ok=True)
            modified = (
                self._link_in(name, chunks) if stat.S_ISLNK(mode) else _file(name, mode, chunks)
            )
            if not stat.S_ISLNK(mode):
                os.utime(name, (modified, modified))
        except (OSError, ValueError) as error:
            if isinstance(error, ConnectionError):
                raise
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._fail(f"couldn't create file: {reason}")
            for _ in chunks:  # Data that the host has sent meanwhile.
                pass
            return
        self._link.sendall(_HEAD.pack(b"OKAY", 0))

    def _link_in(self, name: str, chunks: Iterator[bytes | int]) -> int:
        target, modified = b"", 0
        for chunk in chunks:
            if isinstance(chunk, int):
                modified = chunk
            else:
                target += chunk
        Path(name).unlink(missing_ok=True)
        Path(name).symlink_to(target.rstrip(b"\0").decode(errors="surrogateescape"))
        return modified

    def _chunks(self) -> Iterator[bytes | int]:
        """Yields the host's data in chunks, then the time of the last change."""
        while True:
            kind, size = _HEAD.unpack(self._exactly(_HEAD.size))
            if kind == b"DONE":
                yield size
                return
            if kind != b"DATA" or size > _MOST_IN_ONE_CHUNK:
                raise _LinkEndedError
            yield self._exactly(size)


def _figures(name: str) -> bytes:
    """Returns mode, size and time of a path; zeros if it does not exist."""
    try:
        found = os.lstat(name)
    except (OSError, ValueError):
        return bytes(12)
    size, modified = found.st_size & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF
    return struct.pack("<3I", found.st_mode, size, modified)


def _file(name: str, mode: int, chunks: Iterator[bytes | int]) -> int:
    """Writes a file. If it cannot be completed, nothing of it is left."""
    modified = 0
    # Written beside the old file, because the old one may be a running program.
    Path(name).unlink(missing_ok=True)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for chunk in chunks:
                if isinstance(chunk, int):
                    modified = chunk
                    continue
                left = memoryview(chunk)
                while left:
                    left = left[file.write(left) :]
            os.fchmod(descriptor, mode & 0o777)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return modified
