"""One stream of a connection, with at most one packet in transit in each direction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from autotune.emulator.adbd.packets import Command, Packet

Send = Callable[[Packet], Awaitable[None]]


class StreamClosedError(Exception):
    """The other side has closed the stream, or the connection is gone."""


class Stream:
    """A stream between the host's adb server and a service of the phone.

    Args:
        local: This side's number for it.
        remote: The other side's number; 0 while it has not answered.
        send: Sends a packet over the connection.
        max_payload: Largest packet that the other side accepts.
    """

    def __init__(self, local: int, remote: int, send: Send, max_payload: int) -> None:
        self.local = local
        self.remote = remote
        self.max_payload = max_payload
        self._send = send
        self._incoming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._okay = asyncio.Event()
        self._closed = False

    async def write(self, data: bytes) -> None:
        """Sends data and waits until the other side has accepted it.

        Raises:
            StreamClosedError: The other side accepts no more data.
        """
        for at in range(0, len(data), self.max_payload):
            if self._closed:
                raise StreamClosedError
            self._okay.clear()
            part = data[at : at + self.max_payload]
            await self._send(Packet(Command.WRTE, self.local, self.remote, part))
            await self.answered()

    async def answered(self) -> None:
        """Waits for the other side's OKAY. Raises StreamClosedError if it closes instead."""
        await self._okay.wait()
        if self._closed:
            raise StreamClosedError

    async def read(self) -> bytes:
        """Returns the next data; empty when the other side has closed. `accept` asks for more."""
        data = await self._incoming.get()
        if data is None:
            self._incoming.put_nowait(None)
            return b""
        return data

    async def accept(self) -> None:
        """Tells the other side that its data was received."""
        if not self._closed:
            await self._send(Packet(Command.OKAY, self.local, self.remote))

    async def close(self) -> None:
        """Ends the stream from this side."""
        if not self._closed:
            self.end()
            await self._send(Packet(Command.CLSE, self.local, self.remote))

    # Calls by the connection.

    def came(self, data: bytes) -> None:
        """Receives data."""
        if data:
            self._incoming.put_nowait(data)

    def okay(self, remote: int) -> None:
        """Notes that the other side has accepted the sent data, or has opened the stream."""
        self.remote = remote
        self._okay.set()

    def end(self) -> None:
        """Marks the stream as ended."""
        self._closed = True
        self._incoming.put_nowait(None)
        self._okay.set()
