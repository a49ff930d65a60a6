"""The files of an emulated kernel as files of this machine's kernel: live, and with the errors of real ones.

They are served directly over `/dev/fuse`. So they can be mounted in the phone's own mount namespace, and the mount
ends with that namespace, whatever happens to this process.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from autotune.emulator.kernel import Tree
from autotune.emulator.phone import fuse_protocol as fuse
from autotune.emulator.phone.fuse_protocol import Attributes, Op, Request

_POLL_MS = 200
_STARTUP_S = 0.005
_FILE_SIZE = 4096
_JOIN_TIMEOUT_S = 5.0
_READ, _WRITE = 4, 2
_ROOT_UID = 0
_FIXED = {
    Op.CREATE: errno.EACCES,
    Op.MKNOD: errno.EACCES,
    Op.MKDIR: errno.EPERM,
    Op.UNLINK: errno.EPERM,
    Op.RMDIR: errno.EPERM,
    Op.RENAME: errno.EPERM,
}
"""Errors of operations that are always refused: nobody can add files to a kernel."""


@dataclass
class _Open:
    """An open file. Its content is fixed when it is read from the beginning, until it is read from there again."""

    path: str
    content: bytes | None = None


class FuseFiles:
    """Answers the kernel for a tree of files, in its own thread.

    Args:
        tree: The files.

    Attributes:
        descriptor: An open `/dev/fuse`, to be mounted by whoever needs the files.

    Raises:
        OSError: This machine has no FUSE, or this user may not use it.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._paths = {fuse.ROOT_NODE: "/"}
        self._nodes = {"/": fuse.ROOT_NODE}
        self._handles: dict[int, _Open] = {}
        self._numbers = itertools.count(1)
        self._ends = threading.Event()
        self.descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._serve, name="emulated kernel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it. Further uses of the files give errors."""
        self._ends.set()
        self._thread.join(_JOIN_TIMEOUT_S)
        if self.descriptor >= 0 and not self._thread.is_alive():
            os.close(self.descriptor)
            self.descriptor = -1

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while not self._ends.is_set():
            poll.poll(_POLL_MS)
            try:
                data = os.read(self.descriptor, fuse.BUFFER_SIZE)
            except OSError as error:
                if error.errno == errno.ENODEV:  # Unmounted.
                    return
                if error.errno == errno.EPERM:  # Not mounted yet.
                    self._ends.wait(_STARTUP_S)
                continue
            request = Request.parse(data)
            if request.op in fuse.SILENT:
                continue
            # A caller that was killed meanwhile needs no answer.
            with suppress(OSError):
                os.write(self.descriptor, self._answered(request))

    def _answered(self, request: Request) -> bytes:
        try:
            return fuse.answer(request.unique, self._answer(request))
        except OSError as error:
            return fuse.answer(request.unique, error=error.errno or errno.EIO)
        except Exception:
            return fuse.answer(request.unique, error=errno.EIO)

    def _answer(self, request: Request) -> bytes:
        op = request.op
        if op in _FIXED:
            raise OSError(_FIXED[Op(op)], "")
        if op == Op.INIT:
            return fuse.init(request)
        if op == Op.STATFS:
            return fuse.statfs()
        if op in (Op.FLUSH, Op.FSYNC, Op.RELEASEDIR, Op.DESTROY):
            return b""
        if op == Op.RELEASE:
            self._handles.pop(request.handle, None)
            return b""
        if op == Op.READ:
            return self._read(request)
        if op == Op.WRITE:
            # Directly to the tree: sysfs treats every write(2) as a separate value.
            self._tree.write(self._handles[request.handle].path, request.data)
            return fuse.written(len(request.data))
        path = self._paths.get(request.node)
        if path is None:
            raise OSError(errno.ESTALE, "")
        if op == Op.LOOKUP:
            return fuse.entry(self._attributes(f"{path.rstrip('/')}/{request.name}"))
        if op in (Op.GETATTR, Op.SETATTR):
            # In SETATTR, only O_TRUNC's new size occurs, and it can be ignored.
            return fuse.attributes(self._attributes(path))
        if op == Op.ACCESS:
            self._check(path, request.uid, request.flags)
            return b""
        if op == Op.OPEN:
            return self._open(path, request)
        if op == Op.OPENDIR:
            return fuse.opened(0, direct=False)
        if op == Op.READDIR:
            return self._list(path, *request.span)
        raise OSError(errno.ENOSYS, "")

    def _attributes(self, path: str) -> Attributes:
        kind = self._kind(path)
        if kind is None:
            raise OSError(errno.ENOENT, "")
        node = self._nodes.get(path)
        if node is None:
            node = self._nodes[path] = len(self._nodes) + 1
            self._paths[node] = path
        if kind == "folder":
            return Attributes(node, stat.S_IFDIR | 0o755, 0)
        return Attributes(node, stat.S_IFREG | self._tree.mode(path), _FILE_SIZE)

    def _kind(self, path: str) -> Literal["file", "folder"] | None:
        # A tree need not know the folders above its own.
        return "folder" if path in ("/", "/sys") else self._tree.kind(path)

    def _check(self, path: str, uid: int, wanted: int) -> None:
        """Checks whether a user may access a path; wanted: 4 to read, 2 to write."""
        if self._kind(path) == "folder":
            if wanted & _WRITE and uid != _ROOT_UID:
                raise OSError(errno.EACCES, "")
            return
        mode = self._tree.mode(path)
        # Root may do whatever anybody may: sysfs refuses even root an access for which a file has no function.
        given = (mode | mode >> 3 | mode >> 6) & 7 if uid == _ROOT_UID else mode & 7
        if wanted & ~given & (_READ | _WRITE):
            raise OSError(errno.EACCES, "")

    def _open(self, path: str, request: Request) -> bytes:
        access = request.flags & os.O_ACCMODE
        wanted = {os.O_RDONLY: _READ, os.O_WRONLY: _WRITE}.get(access, _READ | _WRITE)
        if self._kind(path) is None:
            raise OSError(errno.ENOENT, "")
        self._check(path, request.uid, wanted)
        handle = next(self._numbers)
        self._handles[handle] = _Open(path)
        return fuse.opened(handle, direct=True)

    def _read(self, request: Request) -> bytes:
        file = self._handles[request.handle]
        offset, size = request.span
        if offset == 0 or file.content is None:
            file.content = self._tree.read(file.path)
        return file.content[offset : offset + size]

    def _list(self, path: str, offset: int, size: int) -> bytes:
        try:
            names = self._tree.names(path)
        except OSError:
            if path != "/":
                raise
            names = ["sys"]
        below = path.rstrip("/")
        kinds = [(name, self._kind(f"{below}/{name}") == "folder") for name in sorted(names)]
        return fuse.folder([(".", True), ("..", True), *kinds], offset, size)
