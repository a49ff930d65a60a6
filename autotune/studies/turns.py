"""Several things measured in turns: in blocks, each of which has every one of them once, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from autotune.studies.bench import Measured


def in_turns(
    sides: Sequence[Callable[[], Measured]],
    *,
    blocks: int,
    seed: int,
    told: Callable[[int, Measured], None],
    interrupted: Callable[[], bool],
    earlier: Sequence[tuple[int, Measured]] = (),
) -> list[dict[int, Measured]]:
    """Measures sides in turns.

    Args:
        sides: Measure one of them each.
        blocks: How often each is measured.
        seed: Of the orders.
        told: Called with the number of a side and what was measured of it.
        interrupted: Asked before each measurement whether to stop; what is measured by then counts.
        earlier: What an earlier part of the run measured of the same, in order; blocks that it ended count.

    Returns:
        What was measured of each side, by block.
    """
    found: list[dict[int, Measured]] = [{} for _ in sides]
    order = random.Random(seed)
    for block in range(blocks):
        turns = list(range(len(sides)))
        order.shuffle(turns)
        known = list(earlier[block * len(turns) : (block + 1) * len(turns)])
        if [side for side, _ in known] != turns:
            known, earlier = [], ()
        for number, turn in enumerate(turns):
            if not known and interrupted():
                break
            measured = known[number][1] if known else sides[turn]()
            if not known:
                told(turn, measured)
            found[turn][block] = measured
    return found
