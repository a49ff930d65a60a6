"""Queries to a TVM tracker: which devices serve there, how many are free, and what crashed on them."""

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
    """A session that died, as seen by a device's server: its cause, and the candidate that ran in it."""

    session: int
    cause: str
    candidate: str
    unix_s: int


@dataclass(frozen=True)
class Served:
    """A device server as the tracker knows it.

    Attributes:
        key: Key under which the tracker gives it out.
        address: Its address for clients.
        serial: The device's serial; empty for a server that is not ours.
        emulated: Its emulator; empty for a real device.
        machine: Its processor, such as `aarch64`; empty if the server does not report it.
        ours: Whether it is a server of this project, which reports the following values.
        busy: Whether a session is open.
        sessions: Sessions since it started.
        candidates: Candidates since it started.
        celsius: Temperature; None without a sensor.
        crashes: Total number of sessions that died.
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
    """A tracker at an address. Each query uses its own connection.

    Args:
        host: Its host.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @classmethod
    def parse(cls, text: str) -> TrackerLink:
        """Parses `HOST:PORT`.

        Raises:
            UsageError: The text has another form.
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
        """Returns the device servers of one key, or of all.

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
        """Returns numbers of free devices and waiting clients, by key.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """
        return {
            str(key): (int(entry.get("free", 0)), int(entry.get("pending", 0)))
            for key, entry in self.summary().get("queue_info", {}).items()
        }

    def free(self, key: str) -> int:
        """Returns the number of devices of a key that wait for a client.

        Raises:
            TransientDeviceError: The tracker does not answer.
        """
        return self.queue().get(key, (0, 0))[0]

    def summary(self) -> dict[str, Any]:
        """Returns the tracker's own summary, unchanged.

        Raises:
            TransientDeviceError: It does not answer, or is not a TVM tracker.
        """
        try:
            with socket.create_connection((self.host, self.port), timeout=_TIMEOUT_S) as connection:
                # TVM sends a length and then the text. Without an acknowledgement, the first delays the second by
                # 40 ms.
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
    """Reads one server of the summary. TVM's own servers report only their key and address."""
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
