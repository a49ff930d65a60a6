"""adb's shell services: version 1, a bare byte stream, and version 2 with exit codes and separate errors."""

from __future__ import annotations

import asyncio
import fcntl
import re
import struct
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autotune.emulator.adbd.inside import Inside, Mode, Process
from autotune.emulator.adbd.relay import Descriptor, both_ways
from autotune.emulator.adbd.stream import Stream

_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN, _WINDOW = range(6)
_HEAD = struct.Struct("<BI")
_CHUNK = 1 << 15
_MOST_IN_ONE_PACKET = 1 << 20
_WINDOW_SIZE = re.compile(rb"^(\d+)x(\d+),(\d+)x(\d+)")
_PHONE_WENT_AWAY = 137

Serve = Callable[[Stream], Awaitable[None]]


async def shell(name: str, inside: Inside, *, root: bool) -> Serve:
    """Returns the service `shell[,ARGUMENT...]:COMMAND`. Raises OSError if the phone cannot start it."""
    head, _, command = name.partition(":")
    arguments = head.split(",")[1:]
    terminal = "pty" in arguments or ("raw" not in arguments and not command)
    if "v2" in arguments:
        mode: Mode = "terminal" if terminal else "pipes"
        process = await asyncio.to_thread(inside.shell, command, mode, root=root)
        return lambda stream: _version_2(process, stream)
    return await raw(command, inside, root=root, terminal=terminal)


async def raw(command: str, inside: Inside, *, root: bool, terminal: bool = False) -> Serve:
    """Returns a service for a command. Its output, including errors, goes over the stream unchanged."""
    mode: Mode = "terminal" if terminal else "socket"
    process = await asyncio.to_thread(inside.shell, command, mode, root=root)

    async def serve(stream: Stream) -> None:
        status = Descriptor(process.status)
        try:
            await both_ways(stream, Descriptor(process.stdout))
        finally:
            status.close()

    return serve


async def _version_2(process: Process, stream: Stream) -> None:
    stdout = Descriptor(process.stdout)
    stdin = stdout if process.stdin == process.stdout else Descriptor(process.stdin)
    stderr = Descriptor(process.stderr) if process.stderr is not None else None
    status = Descriptor(process.status)
    one_at_a_time = asyncio.Lock()

    async def tell(kind: int, data: bytes) -> None:
        async with one_at_a_time:
            await stream.write(_HEAD.pack(kind, len(data)) + data)

    async def output(kind: int, source: Descriptor) -> None:
        while data := await source.read(_CHUNK):
            await tell(kind, data)

    incoming = asyncio.ensure_future(_input(stream, stdin, stdout))
    outgoing = asyncio.ensure_future(_outgoing(output, stdout, stderr))
    try:
        await asyncio.wait({incoming, outgoing}, return_when=asyncio.FIRST_COMPLETED)
        if outgoing.done():
            outgoing.result()
            code = await status.read(1) or bytes([_PHONE_WENT_AWAY])
            await tell(_EXIT, code)
    finally:
        for task in (incoming, outgoing):
            task.cancel()
        await asyncio.gather(incoming, outgoing, return_exceptions=True)
        for end in (stdin, stdout, stderr, status):
            if end is not None:
                end.close()


async def _outgoing(
    output: Callable[[int, Descriptor], Awaitable[None]],
    stdout: Descriptor,
    stderr: Descriptor | None,
) -> None:
    work = [output(_STDOUT, stdout)]
    if stderr is not None:
        work.append(output(_STDERR, stderr))
    await asyncio.gather(*work)


async def _input(stream: Stream, stdin: Descriptor, terminal: Descriptor) -> None:
    """Receives the host's packets until the stream is closed."""
    pending = b""
    while data := await stream.read():
        pending += data
        while len(pending) >= _HEAD.size:
            kind, size = _HEAD.unpack_from(pending)
            if size > _MOST_IN_ONE_PACKET:
                return
            if len(pending) < _HEAD.size + size:
                break
            part = pending[_HEAD.size : _HEAD.size + size]
            pending = pending[_HEAD.size + size :]
            await _take(kind, part, stdin, terminal)
        await stream.accept()


async def _take(kind: int, part: bytes, stdin: Descriptor, terminal: Descriptor) -> None:
    if kind == _STDIN and stdin.number >= 0:
        try:
            await stdin.write(part)
        except OSError:
            if stdin is not terminal:
                stdin.close()
    elif kind == _CLOSE_STDIN and stdin is not terminal:
        stdin.close()
    elif kind == _WINDOW and (found := _WINDOW_SIZE.match(part)):
        rows, columns, width, height = (min(int(n), 0xFFFF) for n in found.groups())
        size = struct.pack("HHHH", rows, columns, width, height)
        with suppress(OSError):
            fcntl.ioctl(terminal.number, termios.TIOCSWINSZ, size)
