"""adb's packets: a header of 24 bytes, then the payload."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

_HEADER = struct.Struct("<6I")
HEADER_SIZE = _HEADER.size

VERSION_WITH_CHECKSUM = 0x01000000
"""Last version whose checksums are checked. Those of later versions are ignored."""
VERSION = 0x01000001
MAX_PAYLOAD = 1 << 20


class Command(IntEnum):
    """The kind of a packet: its four letters, little-endian."""

    SYNC = 0x434E5953
    CNXN = 0x4E584E43
    AUTH = 0x48545541
    OPEN = 0x4E45504F
    OKAY = 0x59414B4F
    CLSE = 0x45534C43
    WRTE = 0x45545257


class ProtocolError(Exception):
    """Invalid data for adb's protocol, so the connection cannot continue."""


@dataclass(frozen=True)
class Packet:
    """One packet.

    Attributes:
        command: Its kind.
        arg0: The sender's stream, or another value that depends on the command.
        arg1: The receiver's stream, or another value that depends on the command.
        payload: Its data.
        checksum: The sum of its data as the sender gave it; None if this side makes it.
    """

    command: Command
    arg0: int
    arg1: int
    payload: bytes = b""
    checksum: int | None = None

    def encoded(self) -> bytes:
        """Returns the packet as bytes for the link, with a correct checksum."""
        return (
            _HEADER.pack(
                self.command,
                self.arg0,
                self.arg1,
                len(self.payload),
                sum(self.payload) & 0xFFFFFFFF,
                self.command ^ 0xFFFFFFFF,
            )
            + self.payload
        )

    def intact(self) -> bool:
        """Returns whether the received checksum fits the data."""
        return self.checksum in (None, sum(self.payload) & 0xFFFFFFFF)


class Parser:
    """Splits received data into packets."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """Returns the packets that are complete with this data.

        Raises:
            ProtocolError: The data is not adb's protocol.
        """
        self._pending += data
        packets = []
        while len(self._pending) >= HEADER_SIZE:
            word, arg0, arg1, size, checksum, magic = _HEADER.unpack_from(self._pending)
            if magic != word ^ 0xFFFFFFFF or word not in Command.__members__.values():
                raise ProtocolError(f"there is no command {word:#010x} with magic {magic:#010x}")
            if size > MAX_PAYLOAD:
                raise ProtocolError(f"a packet of {size} bytes; the most is {MAX_PAYLOAD}")
            if len(self._pending) < HEADER_SIZE + size:
                break
            payload = bytes(self._pending[HEADER_SIZE : HEADER_SIZE + size])
            del self._pending[: HEADER_SIZE + size]
            packets.append(Packet(Command(word), arg0, arg1, payload, checksum))
        return packets
