"""Several things measured in turns: in blocks, each of which has every one of them once, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from autotune.studies.bench import Measured
from autotune.studies.space import Figures


def interleaved_blocks(
    sides: Sequence[Callable[[], Measured]],
    *,
    blocks: int,
    seed: int,
    told: Callable[[int, Measured, int], None],
    interrupted: Callable[[], bool],
    earlier: Sequence[tuple[int, Measured]] = (),
) -> list[dict[int, Measured]]:
    """Measures sides in turns.

    Args:
        sides: Measure one of them each.
        blocks: How often each is measured.
        seed: Of the orders.
        told: Called with the number of a side, what was measured of it, and how many measurements there are by
            then, those of an earlier part among them.
        interrupted: Asked before each measurement whether to stop; what is measured by then counts.
        earlier: What an earlier part of the run measured of the same, in order; blocks that it ended count.

    Returns:
        What was measured of each side, by block; where it was not measured well, the block is missing.
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
                told(turn, measured, block * len(turns) + number + 1)
            if measured.figures is not None:
                found[turn][block] = measured
    return found


def figures_of(runs: Mapping[int, Measured]) -> dict[int, Figures]:
    """The figures of what was measured well, by block."""
    return {block: run.figures for block, run in runs.items() if run.figures is not None}


def in_both(
    one: Mapping[int, Figures], other: Mapping[int, Figures]
) -> list[tuple[Figures, Figures]]:
    """The figures of two sides in the blocks that have both."""
    return [(one[block], other[block]) for block in sorted(one.keys() & other.keys())]
