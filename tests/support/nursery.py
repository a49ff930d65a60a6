"""Starts workers that need TVM by forking a process which has imported it.

To import TVM takes each worker more than a second, and most have less than that to do. A fork is a process as any
other, with its own environment, session, output and signals, and it is a child of the process that wants it.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import IO, Any, cast

from autotune.compiler.workers.workers import Worker, die_with_parent

MODULES = {
    f"autotune.compiler.runners.{name}" for name in ("build_worker", "run_worker", "rpc_worker")
}
"""Programs of workers that are forked."""
_SET_CHILD_SUBREAPER = 36
_LARGEST = 1 << 20
_PAUSE_S = 0.005


class Forked:
    """A worker that was forked, with what `Worker` uses of `subprocess.Popen`."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """See `subprocess.Popen.poll`."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen.wait`."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_PAUSE_S)
        return code


def install() -> None:
    """From here on, workers of this process that need TVM are forked from a copy of it as it is now.

    It must have one thread, and must have imported what they need.
    """
    # A worker's real parent ends at once: the worker is then a child of this process.
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this process cannot take over the children of its children")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _serve(theirs)
        os._exit(0)
    theirs.close()
    launched, one_at_a_time = Worker._launched, threading.Lock()

    def fork(self: Worker, descriptor: int) -> subprocess.Popen[bytes]:
        if self._module not in MODULES:
            return launched(self, descriptor)
        reading, writing = os.pipe()
        request = {
            "module": self._module, "arguments": list(self._arguments),
            "environment": dict(self._environment),
        }  # fmt: skip
        with one_at_a_time:
            socket.send_fds(ours, [json.dumps(request).encode()], [descriptor, writing])
            pid = int(ours.recv(64))
        os.close(writing)
        return cast("subprocess.Popen[bytes]", Forked(pid, os.fdopen(reading, "rb")))

    Worker._launched = fork  # type: ignore[method-assign]  # for this process only


def _serve(asked: socket.socket) -> None:
    """Forks a worker for each request, until the process that asks ends."""
    while True:
        text, files, _, _ = socket.recv_fds(asked, _LARGEST, 2)
        if not text:
            return
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            parent = os.getpid()
            if (pid := os.fork()) == 0:
                asked.close()
                os.close(reading)
                os.close(writing)
                while os.getppid() == parent:  # A worker asks to be killed with its parent.
                    time.sleep(_PAUSE_S)
                _become(json.loads(text), *files)
            os.write(writing, str(pid).encode())
            os._exit(0)
        for file in (*files, writing):
            os.close(file)
        os.waitpid(between, 0)  # From now on the worker is a child of who asks for it.
        asked.send(os.read(reading, 64))
        os.close(reading)


def _become(request: dict[str, Any], descriptor: int, output: int) -> None:
    """Does what the request says; ends the process."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.argv = [request["module"], str(descriptor), *request["arguments"]]
    sys.modules.pop(request["module"], None)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    sys.exit()
