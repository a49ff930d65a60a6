"""adb reverse: ports of the phone that lead to the host."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autotune.emulator.adbd.connection import Connection
from autotune.emulator.adbd.inside import Inside
from autotune.emulator.adbd.relay import Descriptor, both_ways
from autotune.emulator.adbd.stream import Stream, StreamClosedError

Serve = Callable[[Stream], Awaitable[None]]


class Reverse:
    """Ports of the phone that one connection's host requested. They end with the connection."""

    def __init__(self, inside: Inside, connection: Connection) -> None:
        self._inside = inside
        self._connection = connection
        self._ports: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def answer(self, request: str) -> bytes:
        """Carries out the part of a service's name after `reverse:`, and returns the answer for the stream."""
        verb, _, rest = request.partition(":")
        if verb == "list-forward":
            return _counted("".join(f"(reverse) {p} {t[0]}\n" for p, t in self._ports.items()))
        if verb == "killforward-all":
            for local in list(self._ports):
                await self._end(local)
            return b"OKAY"
        if verb == "killforward":
            if rest not in self._ports:
                return b"FAIL" + _counted(f"listener '{rest}' not found")
            await self._end(rest)
            return b"OKAY"
        if verb == "forward":
            rebind = not rest.startswith("norebind:")
            local, _, remote = rest.removeprefix("norebind:").partition(";")
            return await self._begin(local, remote, rebind=rebind)
        return b"FAIL" + _counted(f"there is no '{verb}' here")

    async def _begin(self, local: str, remote: str, *, rebind: bool) -> bytes:
        kind, _, number = local.partition(":")
        if kind != "tcp" or not number.isdecimal() or int(number) > 0xFFFF or not remote:
            return b"FAIL" + _counted(f"cannot listen on '{local}'; only on tcp:PORT")
        if local in self._ports:
            if not rebind:
                return b"FAIL" + _counted(f"cannot rebind '{local}'")
            await self._end(local)
        try:
            descriptor = await asyncio.to_thread(self._inside.listen, int(number))
        except OSError as error:
            return b"FAIL" + _counted(f"cannot bind listener: {os.strerror(error.errno or 0)}")
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        port = listener.getsockname()[1]
        local = f"tcp:{port}"
        self._ports[local] = (remote, self._connection.start(self._serve(listener, remote)))
        return b"OKAY" + (_counted(str(port)) if number == "0" else b"")

    async def _serve(self, listener: socket.socket, remote: str) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                accepted, _ = await loop.sock_accept(listener)
                self._connection.start(self._carry(Descriptor(accepted.detach()), remote))

    async def _carry(self, end: Descriptor, remote: str) -> None:
        try:
            stream = await self._connection.open(remote)
            await self._connection.run_stream(stream, lambda stream: both_ways(stream, end))
        except (StreamClosedError, OSError):
            pass
        finally:
            end.close()

    async def _end(self, local: str) -> None:
        _, task = self._ports.pop(local)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _counted(text: str) -> bytes:
    """Returns a text after its length in four hexadecimal digits."""
    data = text.encode()
    return b"%04x" % len(data) + data
