"""Makes a port of this host's loopback reachable on another address of this host."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from autotune.errors import UsageError

_LOOPBACK = "127.0.0.1"
_CONNECT_S = 10.0
_CHUNK = 1 << 16


class Relay:
    """Accepts connections on an address and forwards them to the same port of the loopback, until it is closed.

    Args:
        address: An address of this host.
        port: The port.

    Raises:
        UsageError: The port is taken there, or the address is not this host's.
    """

    def __init__(self, address: str, port: int) -> None:
        self._port = port
        try:
            self._listener = socket.create_server((address, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {address}:{port}: {error.strerror}",
                hint="give --listen an address of this host",
            ) from error
        threading.Thread(target=self._accept, name=f"relay {port}", daemon=True).start()

    def close(self) -> None:
        """Accepts no more connections. Existing ones continue until one side ends."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection((_LOOPBACK, self._port), timeout=_CONNECT_S)
            except OSError:
                return
            server.settimeout(None)
            with server:
                back = threading.Thread(target=_pass, args=(server, client), daemon=True)
                back.start()
                _pass(client, server)
                back.join()


def _pass(source: socket.socket, target: socket.socket) -> None:
    """Forwards bytes until the source ends, and then ends the target's input."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
