"""Which of two settings is better, from blocks in which both are measured in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.measurement.statistics import Interval, paired_speedup

Winner = Literal["first", "second", "tie"]

LOOKS = (12, 24, 36, 48)
"""Numbers of blocks after which a verdict may fall."""
LOOK_CONFIDENCE = 0.993
"""Coverage of the interval at each look: over four looks a wrong winner is named in less than 5 % of cases."""
TIE = 0.01
"""Two settings whose ratio lies surely within 1 % of 1 are a tie."""


@dataclass(frozen=True)
class Verdict:
    """What a comparison says.

    Attributes:
        winner: The smaller of the two, or `tie` where the interval holds 1.
        ratio: First over second, with its interval.
        blocks: How many blocks it rests on.
    """

    winner: Winner
    ratio: Interval
    blocks: int

    @property
    def alike(self) -> bool:
        """Whether the ratio lies surely within 1 % of 1."""
        return self.ratio.low > 1 - TIE and self.ratio.high < 1 + TIE


def judge(
    first: Sequence[float],
    second: Sequence[float],
    *,
    seed: int,
    confidence: float = LOOK_CONFIDENCE,
) -> Verdict:
    """A verdict on values of the same blocks, such as seconds or joules of a step.

    Args:
        first: A value a block.
        second: A value a block, of the same length.
        seed: Of the bootstrap.
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
    """Compares two settings in interleaved blocks until they are told apart, surely alike, or the looks are over.

    A drift that both share, such as a device that warms and throttles, cancels in each block's ratio, and the order
    within a block is drawn, so that it favours neither.

    Args:
        first: Measures the first setting once, such as the median of some steps.
        second: Measures the second.
        seed: Of the orders and the bootstrap.
        looks: Numbers of blocks after which a verdict may fall, rising.
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
