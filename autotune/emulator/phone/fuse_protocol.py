"""The kernel's FUSE protocol, version 7.31, as far as a folder of small files needs it.

The numbers and layouts come from the kernel's interface, `include/uapi/linux/fuse.h`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

MAJOR, MINOR = 7, 31
MAX_WRITE = 1 << 16
BUFFER_SIZE = MAX_WRITE + 8192
FOPEN_DIRECT_IO = 1
ROOT_NODE = 1

_IN = struct.Struct("<IIQQIIIHH")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_ENTRY = struct.Struct("<4Q2I")
_ATTR_OUT = struct.Struct("<Q2I")
_OPEN_OUT = struct.Struct("<Q2I")
_INIT_IN = struct.Struct("<4I")
_INIT_OUT = struct.Struct("<4I2H2I2HI28x")
_STATFS = struct.Struct("<5Q4I24x")
_READ_WRITE = struct.Struct("<2Q2IQ2I")
_DIRENT = struct.Struct("<2Q2I")


class Op(IntEnum):
    """Requests of the kernel. Others are answered with ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


SILENT = {Op.FORGET, Op.INTERRUPT, Op.BATCH_FORGET}
"""Requests that need no answer."""


@dataclass(frozen=True)
class Request:
    """One request of the kernel: the operation, its node, the caller, and the rest as bytes."""

    op: int
    unique: int
    node: int
    uid: int
    body: bytes

    @classmethod
    def parse(cls, data: bytes) -> Request:
        """Parses a request read from `/dev/fuse`."""
        _, op, unique, node, uid, _, _, _, _ = _IN.unpack_from(data)
        return cls(op, unique, node, uid, data[_IN.size :])

    @property
    def name(self) -> str:
        """The body as a name."""
        return self.body.partition(b"\0")[0].decode(errors="surrogateescape")

    @property
    def flags(self) -> int:
        """The first word of the body: how a file is to be opened, or which access is asked about."""
        return int.from_bytes(self.body[:4], "little")

    @property
    def handle(self) -> int:
        """The first two words of the body: the open file."""
        return int.from_bytes(self.body[:8], "little")

    @property
    def span(self) -> tuple[int, int]:
        """Offset and size of a read or write."""
        _, offset, size, *_ = _READ_WRITE.unpack_from(self.body)
        return offset, size

    @property
    def data(self) -> bytes:
        """Data to write."""
        return self.body[_READ_WRITE.size : _READ_WRITE.size + self.span[1]]


@dataclass(frozen=True)
class Attributes:
    """A file or folder as `stat` shows it."""

    node: int
    mode: int
    size: int

    def encoded(self) -> bytes:
        """Returns the attributes as bytes for an answer."""
        blocks, block_size, links, owner = 0, 4096, 1, 0
        times = (0, 0, 0)
        return _ATTR.pack(
            *(self.node, self.size, blocks),
            *times,
            *times,
            *(self.mode, links, owner, owner, 0, block_size, 0),
        )


def answer(unique: int, body: bytes = b"", error: int = 0) -> bytes:
    """Returns an answer, or a refusal with an `errno`."""
    return _OUT.pack(_OUT.size + len(body), -error, unique) + body


def init(request: Request) -> bytes:
    """Returns the body of the answer to INIT."""
    _, _, readahead, _ = _INIT_IN.unpack_from(request.body)
    return _INIT_OUT.pack(MAJOR, MINOR, readahead, 0, 12, 9, MAX_WRITE, 1, 0, 0, 0)


def entry(attributes: Attributes) -> bytes:
    """Returns the body of the answer to LOOKUP. The kernel has to ask again every time."""
    return _ENTRY.pack(attributes.node, 0, 0, 0, 0, 0) + attributes.encoded()


def attributes(found: Attributes) -> bytes:
    """Returns the body of the answer to GETATTR. The kernel has to ask again every time."""
    return _ATTR_OUT.pack(0, 0, 0) + found.encoded()


def opened(handle: int, *, direct: bool) -> bytes:
    """Returns the body of the answer to OPEN. With `direct`, the kernel caches nothing of the file."""
    return _OPEN_OUT.pack(handle, FOPEN_DIRECT_IO if direct else 0, 0)


def written(size: int) -> bytes:
    """Returns the body of the answer to WRITE."""
    return struct.pack("<2I", size, 0)


def statfs() -> bytes:
    """Returns the body of the answer to STATFS: there is no free space, as in sysfs."""
    return _STATFS.pack(0, 0, 0, 0, 0, 4096, 255, 4096, 0)


def folder(names: list[tuple[str, bool]], offset: int, size: int) -> bytes:
    """Returns the body of the answer to READDIR.

    Args:
        names: Every name, and whether it is a folder.
        offset: Number of names that were given before.
        size: Most bytes to return now.
    """
    body = b""
    for index, (name, is_folder) in enumerate(names[offset:], offset + 1):
        data = name.encode(errors="surrogateescape")
        record = _DIRENT.pack(index + 1, index, len(data), 4 if is_folder else 8) + data
        record += bytes(-len(record) % 8)
        if len(body) + len(record) > size:
            break
        body += record
    return body
