"""A question to a TVM tracker: which devices serve there, how many are free, and what crashed on them."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from autotune.errors import TransientDeviceError, UsageError
from autotune.reading import parse_json

_MAGIC = 0x2F271
_SUMMARY = 6
_TIMEOUT_S = 5.0
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Crash:
    """A session that a device's server saw die: its cause, and the candidate that ran in it."""

    session: int
    cause: str
    candidate: str
    unix_s: int


@dataclass(frozen=True)
class Served:
    """A device server as the tracker knows it.

    Attributes:
        key: Key under which the tracker gives it out.
        address: Where clients reach it.
        serial: The device's serial; empty for a server that is not ours.
        emulated: What emulates it; empty for a real device.
        machine: Its processor, such as `aarch64`; empty where the server does not tell.
        ours: Whether it is a server of this project, which tells what follows.
        busy: Whether a session is open.
        sessions: Sessions since it started.
        candidates: Candidates since it started.
        celsius: Temperature; None where it has no sensor.
        crashes: Sessions that died, ever.
        recent: The last few of them, oldest first.
        cpus: The cores that its kernels may use, such as `4-7`; empty for all.
    """

    key: str
    address: tuple[str, int]
    serial: str
    emulated: str
    machine: str
    ours: bool
    busy: bool
    sessions: int
    candidates: int
    celsius: float | None
    crashes: int
    recent: tuple[Crash, ...]
    cpus: str = ""


class TrackerLink:
    """A tracker by its address; each question is a connection of its own.

    Args:
        host: Its host.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @classmethod
    def parse(cls, text: str) -> TrackerLink:
        """Reads `HOST:PORT`.

        Raises:
            UsageError: It is not of that form.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(
                f"'{text}' is not a tracker's address",
                hint="give HOST:PORT, such as 127.0.0.1:9190",
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def served(self, key: str | None = None) -> list[Served]:
        """The device servers, of one key or all.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """
        summary = self.summary()
        found = [_served(entry) for entry in summary.get("server_info", ())]
        return sorted(
            (one for one in found if key is None or one.key == key),
            key=lambda one: (one.key, one.serial, one.address),
        )

    def queue(self) -> dict[str, tuple[int, int]]:
        """Devices free and clients waiting, by key.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """
        return {
            str(key): (int(entry.get("free", 0)), int(entry.get("pending", 0)))
            for key, entry in self.summary().get("queue_info", {}).items()
        }

    def free(self, key: str) -> int:
        """Devices of a key that wait for a client.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """
        return self.queue().get(key, (0, 0))[0]

    def summary(self) -> dict[str, Any]:
        """What the tracker tells of itself, as it tells it.

        Raises:
            TransientDeviceError: It does not answer, or is no TVM tracker.
        """
        try:
            with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S) as connection:
                # TVM sends a length and then the text: unacknowledged, the first holds the second up for 40 ms.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                connection.sendall(struct.pack("<i", _MAGIC))
                if struct.unpack("<i", _exactly(connection, 4))[0] != _MAGIC:
                    raise ValueError("it is not a TVM tracker")
                question = json.dumps([_SUMMARY]).encode()
                connection.sendall(struct.pack("<i", len(question)) + question)
                size = struct.unpack("<i", _exactly(connection, 4))[0]
                if not 0 < size <= _MOST_BYTES:
                    raise ValueError(f"an answer of {size} bytes")
                code, summary = parse_json(_exactly(connection, size))
                if code != 0 or not isinstance(summary, dict):
                    raise ValueError(f"code {code}")
        except (OSError, ValueError, TypeError) as error:
            raise TransientDeviceError(
                f"the tracker at {self} does not answer: {error}",
                hint="start one with `autotune tracker up`",
            ) from error
        return summary


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return bytes(data)


def _served(entry: dict[str, Any]) -> Served:
    """One server of the summary; servers of TVM's own tell their key and address only."""
    address = entry.get("addr") or ("", 0)
    celsius = entry.get("celsius")
    return Served(
        key=str(entry.get("key", "")).removeprefix("server:"),
        address=(str(address[0]), int(address[1])),
        serial=str(entry.get("serial", "")),
        emulated=str(entry.get("emulated", "")),
        machine=str(entry.get("machine", "")),
        ours="candidates" in entry,
        busy=bool(entry.get("busy", False)),
        sessions=int(entry.get("sessions", 0)),
        candidates=int(entry.get("candidates", 0)),
        celsius=None if celsius is None else float(celsius),
        crashes=int(entry.get("crashes", 0)),
        recent=tuple(
            Crash(
                int(crash.get("session", 0)),
                str(crash.get("cause", "")),
                str(crash.get("candidate", "")),
                int(crash.get("unix_s", 0)),
            )
            for crash in entry.get("recent", ())
        ),
        cpus=str(entry.get("cpus", "")),
    )
