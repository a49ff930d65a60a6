"""Which values an index can take: interval arithmetic, so that no load lies outside its tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.errors import UsageError
from autotune.workloads.expressions.terms import (
    LEAST_INT,
    MOST_INT,
    Apply,
    Axis,
    Constant,
    Load,
    Term,
    walk,
)

Range = tuple[int, int]
"""The least and the largest value."""

_ANY: Range = (LEAST_INT, MOST_INT)


def check_indices(
    body: Term, extents: Sequence[int], shape_of: Callable[[int], tuple[int, ...]]
) -> None:
    """Checks that every load of a term lies inside its tensor, whatever the data are.

    Args:
        body: The term.
        extents: Size of each loop.
        shape_of: Shape of a source, by its number.

    Raises:
        UsageError: An index could be negative or too large.
    """
    ranges, _ = _ranges(body, extents)
    for term in walk(body):
        if isinstance(term, Load):
            for axis, (index, size) in enumerate(zip(term.at, shape_of(term.source), strict=True)):
                if index.type != "int":
                    raise UsageError(
                        f"described kernel: an index is a {index.type}", hint="indices are ints"
                    )
                low, high = ranges[index]
                if low < 0 or high >= size:
                    raise UsageError(
                        f"described kernel: an index of source {term.source} can be {low} to {high} along axis "
                        f"{axis}, which has {size} elements",
                        hint="bring it into range with min and max",
                    )


def wrapping(body: Term, extents: Sequence[int]) -> frozenset[Term]:
    """Returns the parts of a term whose ints can leave 32 bits: such results wrap around.

    Args:
        body: The term.
        extents: Size of each loop.
    """
    return _ranges(body, extents)[1]


def _ranges(body: Term, extents: Sequence[int]) -> tuple[dict[Term, Range], frozenset[Term]]:
    """The values that each int can take, and the terms that wrap around, which can take any."""
    ranges: dict[Term, Range] = {}
    wraps = set()
    for term in walk(body):
        if term.type == "int":
            low, high = _range(term, extents, ranges)
            if low < LEAST_INT or high > MOST_INT:
                wraps.add(term)
                low, high = _ANY
            ranges[term] = low, high
    return ranges, frozenset(wraps)


def _range(term: Term, extents: Sequence[int], ranges: dict[Term, Range]) -> Range:
    """The values of a term of exact ints."""
    match term:
        case Axis():
            return 0, extents[term.number] - 1
        case Constant():
            return int(term.value), int(term.value)
        case Apply():
            known = [ranges.get(argument, _ANY) for argument in term.arguments]
            return _of_function(term.function, known)
        case _:
            return _ANY


def _of_function(function: str, known: list[Range]) -> Range:
    match function, known:
        case ("add", ((a, b), (c, d))):
            return a + c, b + d
        case ("sub", ((a, b), (c, d))):
            return a - d, b - c
        case ("mul", ((a, b), (c, d))):
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case ("max", ((a, b), (c, d))):
            return max(a, c), max(b, d)
        case ("min", ((a, b), (c, d))):
            return min(a, c), min(b, d)
        case ("floordiv", ((a, b), (c, d))) if c > 0:
            return min(a // c, a // d), max(b // c, b // d)
        case ("mod", ((a, b), (c, d))) if c > 0:
            return (a, b) if a >= 0 and b < c else (0, d - 1)
        case ("neg", ((a, b),)):
            return -b, -a
        case ("abs", ((a, b),)):
            return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
        case ("select", (_, (a, b), (c, d))):
            return min(a, c), max(b, d)
        case (("floordiv" | "mod"), _):
            raise UsageError(
                "described kernel: a divisor of ints may be 0 or negative",
                hint="divide by positive numbers",
            )
        case _:
            return _ANY
