"""Runs `autotune` in processes that are forked from one which has imported everything.

Importing TVM and the rest takes two seconds for each command. A fork is a normal process: it has its own
environment, folder, signals and exit code.

Run as a program, this is the process that is forked: it takes requests over the socket that is its first argument.
Over the second it forks workers for the tests' own process.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nursery

from autotune.cli.main import main

_MODULES = (
    "autotune.compiler", "tvm", "tvm.rpc", "optuna", "autotune.jobs.kernels.tuning",
    "autotune.compiler.native.opencl_sidecar", *sorted(nursery.MODULES),
)  # fmt: skip
"""What is imported; our compiler first, which says how TVM is."""


def _parent() -> Connection[Any, Any]:
    """What talks with the process that is forked; it ends when this does."""
    return _parents()[0]


def workers() -> socket.socket:
    """Returns the socket over which this process has its own workers forked."""
    return _parents()[1]


@cache
def _parents() -> tuple[Connection[Any, Any], socket.socket]:
    ours, theirs = socket.socketpair()
    wanting, forking = nursery.sockets()
    files = [theirs.fileno(), forking.fileno()]
    process = subprocess.Popen([sys.executable, __file__, *map(str, files)], pass_fds=files)
    theirs.close()
    forking.close()
    connection: Connection[Any, Any] = Connection(ours.detach())

    def end() -> None:
        connection.close()
        wanting.close()
        process.wait()

    atexit.register(end)
    return connection, wanting


def run(
    arguments: Sequence[str], environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Runs `autotune` to its end, as `subprocess.run` with `capture_output` does.

    Raises:
        subprocess.TimeoutExpired: It took longer, and was killed.
    """
    connection = _parent()
    with tempfile.TemporaryDirectory() as folder:
        out, errors = Path(folder, "out"), Path(folder, "errors")
        request = {
            "arguments": list(arguments), "environment": dict(environment), "folder": str(Path.cwd()),
            "out": str(out), "errors": str(errors),
        }  # fmt: skip
        connection.send_bytes(json.dumps(request).encode())
        pid = json.loads(connection.recv_bytes())
        if not connection.poll(timeout):
            os.kill(pid, 9)
            connection.recv_bytes()
            raise subprocess.TimeoutExpired(
                list(arguments), timeout, out.read_bytes(), errors.read_bytes()
            )
        code = json.loads(connection.recv_bytes())
        return subprocess.CompletedProcess(
            list(arguments), code, out.read_text(), errors.read_text()
        )


def _serve(connection: Connection[Any, Any]) -> None:
    """Forks a process for each request, tells its number, waits for it and tells its exit code."""
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        if (pid := os.fork()) == 0:
            connection.close()
            _become(request)
            return
        connection.send_bytes(json.dumps(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send_bytes(json.dumps(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any]) -> None:
    """Does what the request says; ends the process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["errors"])):
        opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    server = nursery.forked_server()  # Now, while there is one thread.
    nursery.install(lambda: server)
    sys.argv = ["autotune", *request["arguments"]]
    sys.exit(main())


if __name__ == "__main__":
    sys.path.pop(0)  # The folder of the tests, which a user's process has not.
    for name in _MODULES:
        import_module(name)
    forking = socket.socket(fileno=int(sys.argv[2]))
    if os.fork() == 0:
        nursery.serve(forking)
    forking.close()
    with suppress(KeyboardInterrupt):
        _serve(Connection(int(sys.argv[1])))
