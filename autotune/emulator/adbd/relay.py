"""Copies bytes between a stream and a descriptor."""

from __future__ import annotations

import asyncio
import os

from autotune.emulator.adbd.stream import Stream

_CHUNK = 1 << 16


class Descriptor:
    """A pipe, socket or terminal that the event loop reads and writes. It is closed with `close`.

    Args:
        number: The descriptor, which this object owns from now on.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        os.set_blocking(number, False)

    async def read(self, size: int = _CHUNK) -> bytes:
        """Returns the next bytes; empty at the end."""
        while True:
            try:
                return os.read(self.number, size)
            except BlockingIOError:
                await self._wait(for_reading=True)
            except OSError:
                return (
                    b""  # A terminal whose last process has ended, or a connection that was reset.
                )

    async def write(self, data: bytes) -> None:
        """Writes all of the data. Raises OSError if there is no reader any more."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.number, view) :]
            except BlockingIOError:
                await self._wait(for_reading=False)

    def close(self) -> None:
        """Closes it. A second call does nothing."""
        if self.number >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.number)
            loop.remove_writer(self.number)
            os.close(self.number)
            self.number = -1

    async def _wait(self, *, for_reading: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        add, remove = (
            (loop.add_reader, loop.remove_reader)
            if for_reading
            else (loop.add_writer, loop.remove_writer)
        )

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        number = self.number
        add(number, wake)
        try:
            await ready
        finally:
            remove(number)


async def to_stream(source: Descriptor, stream: Stream) -> None:
    """Copies all data of a descriptor into a stream."""
    while data := await source.read(min(_CHUNK, stream.max_payload)):
        await stream.write(data)


async def to_descriptor(stream: Stream, target: Descriptor) -> None:
    """Copies all data of a stream into a descriptor."""
    open_still = True
    while data := await stream.read():
        if open_still:
            try:
                await target.write(data)
            except OSError:
                open_still = False
        await stream.accept()


async def both_ways(stream: Stream, end: Descriptor) -> None:
    """Copies bytes in both directions until the descriptor ends or the stream is closed."""
    up = asyncio.ensure_future(to_stream(end, stream))
    down = asyncio.ensure_future(to_descriptor(stream, end))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)
        end.close()
