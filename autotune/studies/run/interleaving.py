"""Measures several things in turns: in blocks that each contain every one of them once, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from autotune.studies.evaluators import Measured
from autotune.studies.space import Figures


def interleaved_blocks(
    sides: Sequence[Callable[[], Measured]],
    *,
    blocks: int,
    seed: int,
    on_measured: Callable[[int, Measured, int], None],
    interrupted: Callable[[], bool],
    earlier: Sequence[tuple[int, Measured]] = (),
) -> list[dict[int, Measured]]:
    """Measures sides in turns.

    Args:
        sides: Functions that measure one side each.
        blocks: How often each is measured.
        seed: Seed of the orders.
        on_measured: Called with the number of a side, its measurement, and the number of measurements so far,
            including those of earlier parts of the run.
        interrupted: Called before each measurement; returns whether to stop. Earlier measurements count.
        earlier: Measurements of the same by earlier parts of the run, in order. Completed blocks count.

    Returns:
        The measurements of each side, by block. A block without a valid measurement is missing.
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
                on_measured(turn, measured, block * len(turns) + number + 1)
            if measured.figures is not None:
                found[turn][block] = measured
    return found


def figures_of(runs: Mapping[int, Measured]) -> dict[int, Figures]:
    """Returns the figures of valid measurements, by block."""
    return {block: run.figures for block, run in runs.items() if run.figures is not None}


def in_both(
    one: Mapping[int, Figures], other: Mapping[int, Figures]
) -> list[tuple[Figures, Figures]]:
    """Returns the figures of two sides in the blocks that have both."""
    return [(one[block], other[block]) for block in sorted(one.keys() & other.keys())]
