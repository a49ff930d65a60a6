"""The services of an emulated phone, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal
from weakref import WeakKeyDictionary

from autotune.emulator.adbd import shell_service
from autotune.emulator.adbd.connection import Connection, RefusedError
from autotune.emulator.adbd.inside import Inside
from autotune.emulator.adbd.relay import Descriptor, both_ways
from autotune.emulator.adbd.reverse import Reverse
from autotune.emulator.adbd.stream import Stream

Serve = Callable[[Stream], Awaitable[None]]

Rooted = Literal["no", "su", "adb"]
"""How a phone gives root: never, through a program `su`, or to adb itself (`adb root`, as in userdebug builds)."""


class PhoneServices:
    """The services of a phone's daemon.

    Args:
        inside: Runs commands.
        rooted: How the phone gives root.
        reboot: Restarts the phone; returns at once.
    """

    def __init__(self, inside: Inside, rooted: Rooted, reboot: Callable[[], None]) -> None:
        self._inside = inside
        self._rooted = rooted
        self._reboot = reboot
        self._root = rooted == "adb"
        self._reverse: WeakKeyDictionary[Connection, Reverse] = WeakKeyDictionary()

    async def find(self, name: str, connection: Connection) -> Serve:
        """See `connection.Services`."""
        kind, _, rest = name.partition(":")
        kind = kind.partition(",")[0]
        if kind == "shell":
            return await shell_service.shell(name, self._inside, root=self._root)
        if kind == "exec":
            return await shell_service.raw(rest, self._inside, root=self._root)
        if kind == "sync":
            return _carried(await asyncio.to_thread(self._inside.sync, root=self._root))
        if kind == "tcp":
            port = rest.partition(":")[0]
            if not port.isdecimal() or not 0 < int(port) < 0x10000:
                raise RefusedError(name)
            return _carried(await asyncio.to_thread(self._inside.connect, int(port)))
        if kind == "reverse":
            reverse = self._reverse.get(connection)
            if reverse is None:
                reverse = self._reverse[connection] = Reverse(self._inside, connection)
            return _said(await reverse.answer(rest))
        if kind == "reboot":
            return self._rebooting
        if kind in ("root", "unroot"):
            return self._become(root=kind == "root", connection=connection)
        raise RefusedError(name)

    async def _rebooting(self, stream: Stream) -> None:
        self._reboot()

    def _become(self, *, root: bool, connection: Connection) -> Serve:
        if root and self._rooted != "adb":
            return _said(b"adbd cannot run as root in production builds\n")
        if root == self._root:
            state = b"already running as root" if root else b"not running as root"
            return _said(b"adbd is " + state + b"\n")

        async def restart(stream: Stream) -> None:
            self._root = root
            await stream.write(
                b"restarting adbd as root\n" if root else b"restarting adbd as non root\n"
            )
            await stream.close()
            connection.drop()

        return restart


def _carried(descriptor: int) -> Serve:
    return lambda stream: both_ways(stream, Descriptor(descriptor))


def _said(answer: bytes) -> Serve:
    return lambda stream: stream.write(answer)
