"""adb's packets, and what a broken or hostile peer may send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.emulator.adbd.packets import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    Command,
    Packet,
    Parser,
    ProtocolError,
)

words = st.integers(0, 0xFFFFFFFF)
packets = st.builds(Packet, st.sampled_from(Command), words, words, st.binary(max_size=300))


@given(st.lists(packets, max_size=6), st.integers(1, 64))
def test_packets_come_through_in_whatever_pieces(sent: list[Packet], size: int) -> None:
    data = b"".join(packet.encoded() for packet in sent)
    parser, found = Parser(), []
    for at in range(0, len(data), size):
        found += parser.feed(data[at : at + size])
    assert [(p.command, p.arg0, p.arg1, p.payload) for p in found] == [
        (p.command, p.arg0, p.arg1, p.payload) for p in sent
    ]
    assert all(packet.intact() for packet in found)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_on(data: bytes) -> None:
    parser = Parser()
    try:
        assert parser.feed(data) == []
    except ProtocolError:
        return
    assert len(data) < HEADER_SIZE


@given(packets, st.integers(0, HEADER_SIZE - 1), st.integers(1, 255))
def test_one_wrong_byte_of_a_header(packet: Packet, at: int, change: int) -> None:
    data = bytearray(packet.encoded())
    data[at] ^= change
    try:
        found = Parser().feed(bytes(data))
    except ProtocolError:
        return
    for one in found:
        assert one.command is packet.command


def test_a_wrong_checksum_is_seen() -> None:
    data = bytearray(Packet(Command.WRTE, 1, 2, b"data").encoded())
    data[-1] ^= 1
    (found,) = Parser().feed(bytes(data))
    assert not found.intact()


def test_a_packet_too_big_is_refused_before_it_comes() -> None:
    head = Packet(Command.WRTE, 1, 2, b"").encoded()
    too_big = head[:12] + (MAX_PAYLOAD + 1).to_bytes(4, "little") + head[16:]
    with pytest.raises(ProtocolError, match="the most is"):
        Parser().feed(too_big)
