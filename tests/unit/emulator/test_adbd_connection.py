"""A connection of the daemon, without sockets: streams, refusals, faults."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from autotune.emulator.adbd.connection import Connection, Identity, RefusedError
from autotune.emulator.adbd.link_faults import LinkFaults
from autotune.emulator.adbd.packets import MAX_PAYLOAD, VERSION, Command, Packet, Parser
from autotune.emulator.adbd.stream import Stream


class Writer:
    """What the daemon writes to."""

    def __init__(self) -> None:
        self.data = b""
        self.aborted = False
        self.transport = self

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class EchoServices:
    async def find(self, name: str, connection: Connection) -> Callable[[Stream], Awaitable[None]]:
        if name != "echo:":
            raise RefusedError(name)

        async def serve(stream: Stream) -> None:
            while data := await stream.read():
                await stream.accept()
                await stream.write(data.upper())

        return serve


async def talk(
    packets: list[Packet], faults: LinkFaults | None = None, raw: bytes = b"", **identity: object
) -> tuple[list[Packet], Writer]:
    """What the daemon answers to packets, given one after the other."""
    reader, writer = asyncio.StreamReader(), Writer()
    reported = Identity("device::", **{"authorise": "always", **identity})  # type: ignore[arg-type]
    connection = Connection(reader, writer, reported, EchoServices(), faults or LinkFaults())  # type: ignore[arg-type]
    task = asyncio.ensure_future(connection.serve())
    for data in [*(packet.encoded() for packet in packets), raw]:
        reader.feed_data(data)
        for _ in range(8):
            await asyncio.sleep(0)
    reader.feed_eof()
    await asyncio.wait_for(task, 5)
    return Parser().feed(writer.data), writer


HELLO = Packet(Command.CNXN, VERSION, MAX_PAYLOAD, b"host::")


def test_a_service_is_opened_and_answers() -> None:
    sent = [
        HELLO,
        Packet(Command.OPEN, 7, 0, b"echo:\0"),
        Packet(Command.WRTE, 7, 1, b"hi"),
        Packet(Command.OKAY, 7, 1),
        Packet(Command.CLSE, 7, 1),
    ]
    answers, _ = asyncio.run(talk(sent))
    assert [(p.command, p.arg0, p.arg1, p.payload) for p in answers] == [
        (Command.CNXN, VERSION, MAX_PAYLOAD, b"device::"),
        (Command.OKAY, 1, 7, b""),
        (Command.OKAY, 1, 7, b""),
        (Command.WRTE, 1, 7, b"HI"),
    ]


def test_a_refusal_names_no_stream_of_the_phone() -> None:
    answers, _ = asyncio.run(talk([HELLO, Packet(Command.OPEN, 7, 0, b"absent:\0")]))
    assert (answers[-1].command, answers[-1].arg0, answers[-1].arg1) == (Command.CLSE, 0, 7)


def test_who_is_not_trusted_opens_nothing() -> None:
    opened = Packet(Command.OPEN, 7, 0, b"echo:\0")
    signed = Packet(Command.AUTH, 2, 0, bytes(256))
    for authorise in ("never", ["not a key"]):
        answers, _ = asyncio.run(talk([HELLO, opened, signed, opened], authorise=authorise))
        assert {(p.command, p.arg0) for p in answers} == {(Command.AUTH, 1)}


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\n\r\n" * 3, bytes(24), b"\xff" * 24])
def test_garbage_ends_the_connection(raw: bytes) -> None:
    _, writer = asyncio.run(talk([HELLO], raw=raw))
    assert writer.aborted


def test_a_connection_that_is_to_end_after_some_bytes() -> None:
    faults = LinkFaults()
    faults.drop_after(len(HELLO.encoded()) + 10)
    _, writer = asyncio.run(talk([HELLO], faults))
    assert (len(writer.data), writer.aborted) == (10, True)
    assert faults.allowed(1000) == 1000


def test_the_nth_opening_ends_the_connection() -> None:
    faults = LinkFaults()
    faults.drop_at_open("echo", 2)
    opened = [Packet(Command.OPEN, number, 0, b"echo:\0") for number in (5, 6, 7)]
    answers, writer = asyncio.run(talk([HELLO, *opened], faults))
    assert [p.arg1 for p in answers if p.command is Command.OKAY] == [5]
    assert writer.aborted


def test_every_count_of_bytes_cuts_once() -> None:
    for count in range(1, 40):
        faults = LinkFaults()
        faults.drop_after(count)
        passed, cut = 0, False
        while not cut:
            allowed = faults.allowed(7)
            passed += allowed
            cut = allowed < 7
        assert count - 1 <= passed <= count


def test_faults_are_told_at_once_and_cleared() -> None:
    faults, reported = LinkFaults(), []
    faults.on_change(lambda: reported.append(faults.drops))
    faults.drop_now()
    faults.unauthorised = True
    faults.refuse = True
    assert reported == [1, 2, 3]
    faults.hang(30)
    assert 29 < faults.hanging() <= 30
    faults.clear()
    assert (faults.hanging(), faults.refuse, faults.unauthorised) == (0.0, False, False)


def test_a_slow_link_takes_its_time() -> None:
    faults = LinkFaults()
    faults.bytes_per_second = 600
    started = time.monotonic()
    asyncio.run(talk([HELLO], faults))
    assert time.monotonic() - started > 0.08
