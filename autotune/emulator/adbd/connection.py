"""One connection of the host's adb server: the identity of the host, and the streams over the connection."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, Protocol

from autotune.emulator.adbd.keys import TOKEN_SIZE, PublicKey
from autotune.emulator.adbd.link_faults import LinkFaults
from autotune.emulator.adbd.packets import (
    MAX_PAYLOAD,
    VERSION,
    VERSION_WITH_CHECKSUM,
    Command,
    Packet,
    Parser,
    ProtocolError,
)
from autotune.emulator.adbd.stream import Stream, StreamClosedError

_TOKEN, _SIGNATURE, _PUBLIC_KEY = 1, 2, 3
_READ_SIZE = 1 << 16

Serve = Callable[[Stream], Awaitable[None]]
Authorise = Literal["always", "never"] | Sequence[str]
"""The hosts that the phone trusts: all, none, or those with these public keys (lines of `adbkey.pub`)."""


class RefusedError(Exception):
    """There is no such service, or it is not available now."""


class Services(Protocol):
    """The phone's services."""

    async def find(self, name: str, connection: Connection) -> Serve:
        """Returns the service of a name, ready to serve a stream. Raises RefusedError."""


@dataclass(frozen=True)
class Identity:
    """The daemon's identity, and its demands on hosts."""

    banner: str
    authorise: Authorise


class Connection:
    """Serves one host until the link ends.

    Args:
        reader: Data from the host.
        writer: Data to the host.
        identity: The phone's identity.
        services: The phone's services.
        faults: Faults of the link.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        identity: Identity,
        services: Services,
        faults: LinkFaults,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._identity, self._services, self._faults = identity, services, faults
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._sending = asyncio.Lock()
        self._max_payload = 4096
        self._peer_version = VERSION_WITH_CHECKSUM
        self._token = b""
        self._trusted = False

    def drop(self) -> None:
        """Cuts the link without a message."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Serves until the link ends."""
        parser = Parser()
        try:
            while data := await self._reader.read(_READ_SIZE):
                passed = self._faults.allowed(len(data))
                await self._delay(passed)
                for packet in parser.feed(data[:passed]):
                    await self._handle(packet)
                if passed < len(data):
                    break
        except (ProtocolError, OSError):
            pass
        finally:
            await self._end()

    async def open(self, service: str) -> Stream:
        """Opens a stream to a service of the host, for adb reverse.

        Raises StreamClosedError if the host refuses.
        """
        stream = Stream(next(self._numbers), 0, self.send, self._max_payload)
        self._streams[stream.local] = stream
        await self.send(Packet(Command.OPEN, stream.local, 0, service.encode() + b"\0"))
        try:
            await stream.answered()
        except StreamClosedError:
            self._streams.pop(stream.local, None)
            raise
        return stream

    async def run_stream(self, stream: Stream, serve: Serve) -> None:
        """Serves a stream to its end."""
        try:
            with suppress(StreamClosedError, OSError):
                await serve(stream)
        finally:
            self._streams.pop(stream.local, None)
            with suppress(OSError):
                await stream.close()

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Runs something for as long as this connection lasts."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def send(self, packet: Packet) -> None:
        """Sends a packet, as far as the link's faults allow."""
        async with self._sending:
            data = packet.encoded()
            if self._faults.garbage_bytes:
                data = os.urandom(self._faults.garbage_bytes) + data
                self._faults.garbage_bytes = 0
            passed = self._faults.allowed(len(data))
            await self._delay(passed)
            if self._writer.is_closing():
                raise ConnectionResetError
            self._writer.write(data[:passed])
            await self._writer.drain()
            if passed < len(data):
                self.drop()
                raise ConnectionResetError

    async def _delay(self, count: int) -> None:
        """Waits for the time that `count` bytes take. Nothing is sent while the phone hangs."""
        while (left := self._faults.hanging()) > 0 and not self._writer.is_closing():
            await asyncio.sleep(min(left, 0.05))
        if speed := self._faults.bytes_per_second:
            ends = time.monotonic() + count / speed
            while (left := ends - time.monotonic()) > 0 and self._faults.bytes_per_second:
                await asyncio.sleep(min(left, 0.1))
                if self._writer.is_closing():
                    break

    async def _handle(self, packet: Packet) -> None:
        if self._peer_version <= VERSION_WITH_CHECKSUM and self._trusted and not packet.intact():
            raise ProtocolError("the checksum does not fit the data")
        if packet.command is Command.CNXN:
            self._peer_version = packet.arg0
            self._max_payload = max(1, min(packet.arg1, MAX_PAYLOAD))
            await self._welcome()
        elif packet.command is Command.AUTH:
            await self._check(packet)
        elif not self._trusted:
            return
        elif packet.command is Command.OPEN:
            self._open(packet)
        elif stream := self._streams.get(packet.arg1):
            if packet.command is Command.OKAY:
                stream.okay(packet.arg0)
            elif packet.command is Command.WRTE:
                stream.came(packet.payload)
            elif packet.command is Command.CLSE:
                self._streams.pop(stream.local)
                stream.end()
        elif packet.command is Command.WRTE:
            await self.send(Packet(Command.CLSE, 0, packet.arg0))

    async def _welcome(self) -> None:
        if self._identity.authorise == "always" and not self._faults.unauthorised:
            self._trusted = True
            banner = self._identity.banner.encode()
            await self.send(Packet(Command.CNXN, VERSION, MAX_PAYLOAD, banner))
        else:
            self._token = os.urandom(TOKEN_SIZE)
            await self.send(Packet(Command.AUTH, _TOKEN, 0, self._token))

    async def _check(self, packet: Packet) -> None:
        """Checks a host's signature of the token, or its offer of a key for the phone's owner to accept."""
        known = self._identity.authorise
        if isinstance(known, str) or self._faults.unauthorised:
            known = ()
        keys = [key for key in map(PublicKey.parse, known) if key]
        if packet.arg0 == _SIGNATURE and any(k.signed(self._token, packet.payload) for k in keys):
            self._trusted = True
            banner = self._identity.banner.encode()
            await self.send(Packet(Command.CNXN, VERSION, MAX_PAYLOAD, banner))
        elif packet.arg0 == _SIGNATURE:
            self._token = os.urandom(TOKEN_SIZE)
            await self.send(Packet(Command.AUTH, _TOKEN, 0, self._token))
        # A public key waits for an answer from the owner, who is not there.

    def _open(self, packet: Packet) -> None:
        name = packet.payload.rstrip(b"\0").decode(errors="replace")
        if self._faults.ends_open(name):
            self.drop()
            raise ConnectionResetError
        stream = Stream(next(self._numbers), packet.arg0, self.send, self._max_payload)
        self._streams[stream.local] = stream
        self.start(self._serve_open(name, stream))

    async def _serve_open(self, name: str, stream: Stream) -> None:
        try:
            serve = await self._services.find(name, self)
        except (RefusedError, OSError):
            self._streams.pop(stream.local, None)
            # With this side's number in it, the host would treat the refusal as an answer to nothing, and wait.
            with suppress(OSError):
                await self.send(Packet(Command.CLSE, 0, stream.remote))
            return
        with suppress(OSError):
            await stream.accept()
            await self.run_stream(stream, serve)

    async def _end(self) -> None:
        self.drop()
        for stream in list(self._streams.values()):
            stream.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
