"""Forks workers that need TVM from a process that has already imported it.

Importing TVM takes over a second for each worker. A fork is a normal process: it has its own environment, session,
output and signals. It ends when the process that requested it ends.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from autotune.compiler.workers.workers import Worker, die_with_parent

MODULES = {
    f"autotune.compiler.runners.{name}" for name in ("build_worker", "run_worker", "rpc_worker")
}
"""Programs of workers that are forked."""
_LARGEST = 1 << 20
_NUMBER = struct.Struct("i")


class Forked:
    """A worker that was forked, with what `Worker` uses of `subprocess.Popen`.

    Args:
        status: File descriptor that tells the number of the process, and later its exit code.
        stdout: What it prints.
    """

    def __init__(self, status: int, stdout: IO[bytes]) -> None:
        self._status, self.stdout = status, stdout
        (self.pid,) = _NUMBER.unpack(os.read(status, _NUMBER.size))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """See `subprocess.Popen.poll`."""
        return self._exit_code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen.wait`."""
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            text = os.read(self._status, _NUMBER.size)
            self.returncode = _NUMBER.unpack(text)[0] if text else -signal.SIGKILL
            os.close(self._status)
        return self.returncode


def install(connect: Callable[[], socket.socket]) -> None:
    """From here on, workers of this process that need TVM are forked.

    Args:
        connect: Returns the socket of a process that serves forks; called for the first worker.
    """
    launched, one_at_a_time = Worker._launched, threading.Lock()
    served: list[socket.socket] = []

    def fork(self: Worker, descriptor: int) -> subprocess.Popen[bytes]:
        if self._module not in MODULES:
            return launched(self, descriptor)
        request = {
            "module": self._module, "arguments": list(self._arguments),
            "environment": dict(self._environment), "folder": str(Path.cwd()),
        }  # fmt: skip
        reading, output = os.pipe()
        status, reported = os.pipe()
        with one_at_a_time:
            if not served:
                served.append(connect())
            files = [descriptor, output, reported]
            socket.send_fds(served[0], [json.dumps(request).encode()], files)
        os.close(output)
        os.close(reported)
        return cast("subprocess.Popen[bytes]", Forked(status, os.fdopen(reading, "rb")))

    Worker._launched = fork  # type: ignore[method-assign]  # for this process only


def forked_server() -> socket.socket:
    """Forks this process, which must have one thread, to serve forks of what it is now."""
    ours, theirs = sockets()
    if os.fork() == 0:
        ours.close()
        serve(theirs)
    theirs.close()
    return ours


def sockets() -> tuple[socket.socket, socket.socket]:
    """Returns both ends of a connection of `serve`."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def serve(asked: socket.socket) -> None:
    """Forks a worker for each request, until the process that asks ends. Ends this process then."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nothing has to wait for keepers.
    while True:
        text, files, _, _ = socket.recv_fds(asked, _LARGEST, 3)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            asked.close()
            _keep(json.loads(text), *files)
        for file in files:
            os.close(file)


def _keep(request: dict[str, Any], descriptor: int, output: int, status: int) -> None:
    """Forks a worker, tells its number, waits for it and tells its exit code; ends this process."""
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begun, begins = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(status)
        os.setsid()
        os.write(begins, b".")
        _become(request, descriptor, output)
    for file in (descriptor, output):
        os.close(file)
    os.read(begun, 1)  # From now on its process group can be killed.
    os.write(status, _NUMBER.pack(pid))
    _, ended = os.waitpid(pid, 0)
    os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def _become(request: dict[str, Any], descriptor: int, output: int) -> None:
    """Does what the request says; ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv = [request["module"], str(descriptor), *request["arguments"]]
    sys.modules.pop(request["module"], None)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    sys.exit()
