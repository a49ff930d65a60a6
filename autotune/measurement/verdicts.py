"""Decides which of two settings is better, from blocks in which both are measured in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.measurement.statistics import Interval, paired_speedup

Winner = Literal["first", "second", "tie"]

LOOKS = (12, 24, 36, 48)
"""Numbers of blocks after which a verdict may be given."""
LOOK_CONFIDENCE = 0.993
"""Coverage of the interval at each look. Over four looks the wrong winner is named in less than 5 % of cases."""
TIE = 0.01
"""Two settings are a tie if their ratio is within 1 % of 1 over its whole interval."""


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison.

    Attributes:
        winner: The side with the smaller value, or `tie` if the interval contains 1.
        ratio: First over second, with its interval.
        blocks: Number of blocks.
    """

    winner: Winner
    ratio: Interval
    blocks: int

    @property
    def alike(self) -> bool:
        """Whether the whole interval of the ratio is within 1 % of 1."""
        return self.ratio.low > 1 - TIE and self.ratio.high < 1 + TIE


def judge(
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int,
    confidence: float = LOOK_CONFIDENCE,
) -> Verdict:
    """Returns a verdict on values of the same blocks, such as seconds or joules of a step.

    Args:
        first: One value for each block.
        second: One value for each block, of the same length.
        seed: Seed of the bootstrap.
        confidence: Coverage of the interval.
    """
    ratio = paired_speedup(first, second, seed=seed, confidence=confidence)
    winner: Winner = "second" if ratio.low > 1 else "first" if ratio.high < 1 else "tie"
    return Verdict(winner, ratio, len(first))


def versus(
    first: Callable[[], float],
    second: Callable[[], float],
    *,
    seed: int,
    looks: Sequence[int] = LOOKS,
) -> Verdict:
    """Compares two settings in interleaved blocks until one wins, they are certainly alike, or the looks are over.

    Common drift, as when a device warms up and throttles, cancels in each block's ratio. The order within a block
    is random, so that it favours neither.

    Args:
        first: Measures the first setting once, such as the median of some steps.
        second: Measures the second.
        seed: Seed of the orders and the bootstrap.
        looks: Numbers of blocks after which a verdict may be given, ascending.
    """
    order = random.Random(seed)
    values: tuple[list[float], list[float]] = ([], [])
    verdict: Verdict | None = None
    for look in looks:
        while len(values[0]) < look:
            turns = [0, 1]
            order.shuffle(turns)
            for turn in turns:
                values[turn].append((first, second)[turn]())
        verdict = judge(*values, seed=seed)
        if verdict.winner != "tie" or verdict.alike:
            break
    assert verdict is not None
    return verdict
