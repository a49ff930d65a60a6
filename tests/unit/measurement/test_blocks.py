"""Turns in interleaved blocks."""

from itertools import groupby

from autotune.measurement.blocks import in_blocks


def test_each_is_in_its_first_blocks_once_in_an_order_that_is_drawn_anew() -> None:
    turns = list(in_blocks((3, 11, 5), seed=1))
    assert [turns.count(one) for one in range(3)] == [3, 11, 5]
    first, then = turns[:9], turns[9:13]
    blocks = [tuple(first[at : at + 3]) for at in (0, 3, 6)]
    assert all(sorted(block) == [0, 1, 2] for block in blocks)
    assert len(set(blocks)) > 1
    assert sorted(then[:2]) == sorted(then[2:]) == [1, 2]
    assert [one for one, _ in groupby(turns[13:])] == [1]
    assert turns == list(in_blocks((3, 11, 5), seed=1)) != list(in_blocks((3, 11, 5), seed=2))
