"""The daemon: it listens for the host's adb server on a port of this machine's loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import TypeVar

from autotune.emulator.adbd.connection import Connection, Identity, Services
from autotune.emulator.adbd.link_faults import LinkFaults

_R = TypeVar("_R")
_CALL_TIMEOUT_S = 20.0
_ADDRESS = "127.0.0.1"


class Daemon:
    """Listens in its own thread.

    Args:
        identity: The phone's identity.
        services: Its services.
        faults: Faults of its link; may be changed while it runs.
        port: Its listening port; 0 takes any free port.
    """

    def __init__(
        self, identity: Identity, services: Services, faults: LinkFaults, port: int = 0
    ) -> None:
        self._identity, self._services, self._faults = identity, services, faults
        self.port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="adbd", daemon=True)
        self._server: asyncio.Server | None = None
        self._wanted = False
        self._connections: set[Connection] = set()
        self._drops = faults.drops

    def start(self) -> None:
        """Starts to listen. Raises OSError if the port is taken."""
        if not self._thread.is_alive():
            self._thread.start()
            self._faults.on_change(self._faults_changed)
        self._call(self._listen(wanted=True))

    def pause(self) -> None:
        """Ends every connection and stops listening, until the next `start`."""
        self._call(self._listen(wanted=False))

    def stop(self) -> None:
        """Ends the daemon; it cannot be started again."""
        if self._thread.is_alive():
            with suppress(TimeoutError):
                self._call(self._listen(wanted=False))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CALL_TIMEOUT_S)
        if not self._thread.is_alive() and not self._loop.is_closed():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _call(self, work: Coroutine[None, None, _R]) -> _R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    def _faults_changed(self) -> None:
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            # Returns only when a changed fault is in force.
            with suppress(TimeoutError):
                self._call(self._listen(wanted=self._wanted))

    async def _listen(self, *, wanted: bool) -> None:
        self._wanted = wanted
        if self._drops != self._faults.drops or not wanted:
            self._drops = self._faults.drops
            for connection in list(self._connections):
                connection.drop()
        if not wanted or self._faults.refuse:
            if self._server is not None:
                self._server.close()
                self._server = None
            while self._connections:
                await asyncio.sleep(0.01)
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, _ADDRESS, self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer, self._identity, self._services, self._faults)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
