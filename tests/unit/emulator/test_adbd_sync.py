"""adb's file service over a socket pair."""

import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.emulator.adbd.sync_service import SyncService


def asked(kind: bytes, data: bytes = b"") -> bytes:
    return kind + struct.pack("<I", len(data)) + data


@pytest.fixture
def link() -> Iterator[socket.socket]:
    here, there = socket.socketpair()
    here.settimeout(5)
    thread = threading.Thread(target=SyncService(there).serve, daemon=True)
    thread.start()
    yield here
    here.close()
    thread.join(5)
    there.close()
    assert not thread.is_alive()


def received(link: socket.socket, size: int) -> bytes:
    """`size` bytes, or what came before the end. (MSG_WAITALL does not wait on a socket that has a timeout.)"""
    data = b""
    while len(data) < size and (part := link.recv(size - len(data))):
        data += part
    return data


def answer(link: socket.socket) -> tuple[bytes, bytes]:
    kind, size = struct.unpack("<4sI", received(link, 8))
    return kind, received(link, size)


def test_a_file_is_sent_with_its_folders_and_received(link: socket.socket, tmp_path: Path) -> None:
    path, data = tmp_path / "a b" / "c,d", os.urandom(100_000)
    link.sendall(asked(b"SEND", f"{path},{stat.S_IFREG | 0o755}".encode()))
    link.sendall(asked(b"DATA", data[:65536]) + asked(b"DATA", data[65536:]))
    link.sendall(b"DONE" + struct.pack("<I", 1_000_000_000))
    assert answer(link) == (b"OKAY", b"")
    assert path.read_bytes() == data
    assert (path.stat().st_mode & 0o777, path.stat().st_mtime) == (0o755, 1_000_000_000)
    link.sendall(asked(b"RECV", str(path).encode()))
    back = b""
    while (got := answer(link))[0] == b"DATA":
        back += got[1]
    assert (got[0], back) == (b"DONE", data)
    link.sendall(asked(b"STAT", str(path).encode()))
    assert received(link, 4) == b"STAT"
    mode, size, _ = struct.unpack("<3I", received(link, 12))
    assert (stat.S_ISREG(mode), size) == (True, len(data))


def test_what_cannot_be_had_is_refused_with_the_reason(link: socket.socket, tmp_path: Path) -> None:
    link.sendall(asked(b"RECV", str(tmp_path / "absent").encode()))
    assert answer(link) == (b"FAIL", b"open failed: No such file or directory")
    (tmp_path / "file").touch()
    link.sendall(asked(b"SEND", f"{tmp_path}/file/below,33188".encode()))
    link.sendall(asked(b"DATA", b"x") + asked(b"DONE"))
    kind, reason = answer(link)
    assert (kind, b"couldn't create file" in reason) == (b"FAIL", True)
    link.sendall(asked(b"STAT", b"/absent"))
    assert received(link, 16) == b"STAT" + bytes(12)


def test_a_file_that_does_not_come_whole_is_not_left(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(asked(b"SEND", f"{tmp_path}/part,33188".encode()) + asked(b"DATA", b"x" * 99))
        here.shutdown(socket.SHUT_WR)
        SyncService(there).serve()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_listed(link: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"123")
    link.sendall(asked(b"LIST", str(tmp_path).encode()))
    kind, mode, size, _, length = struct.unpack("<4s4I", received(link, 20))
    assert (kind, stat.S_ISREG(mode), size, received(link, length)) == (b"DENT", True, 3, b"one")
    assert received(link, 20)[:4] == b"DONE"


@given(st.binary(max_size=200))
def test_garbage_ends_it(data: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(data.replace(b"SEND", b"send"))
        here.shutdown(socket.SHUT_WR)
        SyncService(there).serve()
        there.shutdown(socket.SHUT_WR)
        answer = here.recv(4, socket.MSG_WAITALL)
    # It ends, with nothing to say where the garbage is too short, and else with an answer of its protocol.
    assert answer in (b"", b"FAIL", b"STAT", b"DENT", b"DONE", b"DATA")
    assert len(data) >= 8 or not answer
