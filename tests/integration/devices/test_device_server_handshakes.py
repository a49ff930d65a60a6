"""Clients that connect to a device server and say nothing, or little: the real program, without a tracker."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tvm import rpc

from autotune.compiler.native import device_server

KEY = "door"
MAGIC = (0xFF271).to_bytes(4, "little")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    program = device_server.bundle("host") / device_server.PROGRAM
    command = [str(program), "--dir", str(tmp_path / "server"), "--key", KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().split()[1])
        finally:
            process.terminate()
    assert process.returncode == 0


def silent(port: int, count: int, stack: ExitStack, said: bytes = b"") -> list[socket.socket]:
    """Connections of which nothing more is heard."""
    made = []
    for _ in range(count):
        one = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        if said:
            one.sendall(said)
        made.append(one)
    return made


def session_within(port: int, seconds: float) -> rpc.RPCSession:
    began = time.monotonic()
    session = rpc.connect("127.0.0.1", port, key=KEY)
    assert KEY in session.get_function("autotune.server.info")()
    assert time.monotonic() - began < seconds
    return session


@pytest.mark.parametrize("said", [b"", MAGIC, MAGIC + (100).to_bytes(4, "little") + b"client:"])
def test_silent_connections_keep_nobody_out(port: int, said: bytes) -> None:
    with ExitStack() as stack:
        silent(port, 100, stack, said)
        session_within(port, 3.0)


def test_silent_connections_during_a_session_keep_the_next_client_not_out(port: int) -> None:
    first = session_within(port, 10.0)
    with ExitStack() as stack:
        silent(port, 100, stack)
        assert KEY in first.get_function("autotune.server.info")()
        answers: list[float] = []

        def second() -> None:
            answers.append(time.monotonic())
            session_within(port, 20.0)
            answers.append(time.monotonic())

        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(1.0)
        assert len(answers) == 1, "one session at a time"
        closed = time.monotonic()
        del first
        waiting.join(20)
        assert answers[1] - closed < 3.0


def test_who_says_little_or_nonsense_is_dropped_soon(port: int) -> None:
    with ExitStack() as stack:
        (slow,) = silent(port, 1, stack)
        others = [
            *silent(port, 1, stack, b"GET / HTTP/1.1\r\n\r\n"),
            *silent(port, 1, stack, MAGIC + (-1).to_bytes(4, "little", signed=True)),
            *silent(port, 1, stack, MAGIC + (1 << 30).to_bytes(4, "little")),
        ]
        for one in others:
            one.settimeout(1.0)
            assert closed(one)
        began = time.monotonic()
        with pytest.raises(OSError):
            for byte in MAGIC * 100:
                slow.sendall(bytes([byte]))
                time.sleep(0.7)
        assert time.monotonic() - began < 6.0
        (wrong,) = silent(port, 1, stack, MAGIC + (12).to_bytes(4, "little") + b"client:wrong")
        wrong.settimeout(1.0)
        assert wrong.recv(4) == (0xFF271 + 2).to_bytes(4, "little")
        assert closed(wrong)


def closed(connection: socket.socket) -> bool:
    """Whether the other end has closed it, within the connection's time limit."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
