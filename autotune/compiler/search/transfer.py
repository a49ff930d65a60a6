"""Adapts a schedule of one kernel to a similar kernel of other sizes.

Its instructions are applied again. Only the decisions that depend on sizes are made anew. A loop is split in the
same way: the inner factors are as close to the known ones as the new extent allows, and the outermost factor is the
rest. Then the space's checks run, as for every sample of the search.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

Factors = tuple[int, ...]
_CHOICES = 6


def nearest_tiles(extent: int, factors: Sequence[int], limit: int, count: int) -> list[Factors]:
    """Returns ways to split a loop of another extent like a known loop.

    The outermost factor is the rest, so a longer loop gets more tiles of the same size.

    Args:
        extent: Extent of the new loop.
        factors: Factors of the known loop, outermost first; their product is its extent.
        limit: Largest innermost factor that the space allows.
        count: Most ways to return.

    Returns:
        Factors whose product is the extent, nearest first. The distance is the sum of the logarithms of the inner
        factors' ratios. Never empty.
    """
    divisors = _divisors(extent)
    choices = []
    for place, factor in enumerate(factors[1:], start=2):
        allowed = [d for d in divisors if d <= limit or place < len(factors)]
        near = sorted(allowed, key=lambda d: (abs(math.log(d / factor)), d))[:_CHOICES]
        choices.append({1, *near})
    ways = [
        (sum(abs(math.log(d / f)) for d, f in zip(inner, factors[1:], strict=True)), inner)
        for inner in itertools.product(*choices)
        if extent % math.prod(inner) == 0
    ]
    return [(extent // math.prod(inner), *inner) for _, inner in sorted(ways)[:count]]


@cache
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def adapted(schedule: Any, context: Any, known: Any, variant: int) -> Any | None:
    """Returns the schedule of a program, adapted from the trace of a similar program.

    Args:
        schedule: A `Schedule` of the program without instructions.
        context: The tuning context of the program, which has the program and the space's checks.
        known: The known schedule's `Trace`.
        variant: 0 splits all loops as closely to the known ones as possible. Each other variant takes the next
            closest split of one loop.

    Returns:
        The schedule; None if it does not pass the checks, or there is no such variant.

    Raises:
        Exception: The trace's instructions do not fit. TVM raises its first error.
    """
    cuts = _Cuts(schedule, variant)
    known.apply_to_schedule(schedule, True, cuts)
    if cuts.left > 0:
        return None
    schedule.enter_postproc()
    return schedule if passes(context, schedule) else None


def passes(context: Any, schedule: Any) -> bool:
    """Returns whether a schedule passes the space's checks."""
    return all(check.apply(schedule) for check in context.space_generator.postprocs)


class _Cuts:
    """Makes the decisions of a trace for another program."""

    def __init__(self, schedule: Any, variant: int) -> None:
        self._schedule = schedule
        self.left = variant

    def __call__(self, instruction: Any, inputs: Any, attributes: Any, decision: Any) -> Any:
        if instruction.kind.name != "SamplePerfectTile":
            return decision
        extent = int(self._schedule.get(inputs[0]).extent)
        factors = [int(factor) for factor in decision]
        if extent == math.prod(factors) and self.left == 0:
            return decision
        ways = nearest_tiles(extent, factors, int(attributes[1]), 2)
        chosen = ways[0]
        if self.left > 0 and len(ways) > 1:
            self.left -= 1
            if self.left == 0:
                chosen = ways[1]
        return list(chosen)
