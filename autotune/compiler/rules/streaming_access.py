"""How a block of a program goes through memory: its loops, and the loop along which most of it is contiguous."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_REDUCED = 2  # A value of `IterVar.iter_type`.
_EXPENSIVE = frozenset({"exp", "log", "tanh", "pow", "erf", "sin", "cos", "sigmoid", "sqrt", "div"})


@dataclass(frozen=True)
class Access:
    """The loops around a block, outermost first; a loop is named by its number.

    Attributes:
        extents: Their extents.
        reduced: Those that are reduced.
        spatial: The others.
        written: The one along which results are contiguous.
        strides: For each tensor that is read or written: how many elements apart neighbours lie along each loop;
            None if that differs from place to place.
        cuts: For each loop: the greatest common divisor of the places where a condition changes along it; 0 if none
            does. Vectors of as many lanes have one value of the condition each.
    """

    extents: tuple[int, ...]
    reduced: tuple[int, ...]
    spatial: tuple[int, ...]
    written: int
    strides: tuple[tuple[int | None, ...], ...]
    cuts: tuple[int, ...]

    @property
    def steps(self) -> int:
        """How often the body is computed."""
        return math.prod(self.extents)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Extents of the loops of the result."""
        return tuple(self.extents[at] for at in self.spatial)

    @property
    def longest(self) -> int:
        """The reduced loop with most steps."""
        return max(self.reduced, key=lambda at: self.extents[at])

    @property
    def contiguous(self) -> int:
        """The loop along which most of the memory that is read or written is contiguous."""
        weight: dict[int, int] = dict.fromkeys((self.written, *range(len(self.extents))), 0)
        for strides in self.strides:
            size = math.prod(
                extent for extent, one in zip(self.extents, strides, strict=True) if one != 0
            )
            for at, stride in enumerate(strides):
                if stride == 1 and self.extents[at] > 1:
                    weight[at] += size
        return max(weight, key=lambda at: weight[at])


def access_of(sch: Any, block: Any) -> Access:
    """Returns how a block of a schedule goes through memory. It has at least one loop."""
    body = sch.get(block)
    loops = [sch.get(one) for one in sch.get_loops(block)]
    variables = [one.loop_var for one in loops]
    extents = tuple(int(one.extent) for one in loops)
    bound = _bindings(sch, body)
    origin = _at(variables, bound, None)
    places = [_at(variables, bound, one) for one in variables]

    def strides(region: Any) -> tuple[int | None, ...]:
        flat: Any = 0
        for size, place in zip(region.source.shape, region.region, strict=True):
            flat = flat * size + place.min
        return tuple(_difference(place.simplify(flat), origin.simplify(flat)) for place in places)

    reduced = _reduced(body, variables, places, origin)
    spatial = tuple(at for at in range(len(loops)) if at not in reduced)
    write = strides(body.writes[0])
    inner = [at for at in spatial if write[at] == 1 and extents[at] > 1]
    return Access(
        extents,
        reduced,
        spatial,
        (inner or spatial or (0,))[-1],
        (*map(strides, body.reads), *map(strides, body.writes)),
        _cuts(body.body.value, places, origin),
    )


def is_cheap(body: Any) -> bool:
    """Returns whether a block has no function that takes tens of instructions."""
    return not _called(body.body.value) & _EXPENSIVE


def _called(value: Any) -> set[str]:
    """Returns the names of the functions in an expression."""
    from tvm import ir, tirx

    found = set()
    for one in _within(value):
        if isinstance(one, ir.Call):
            found.add(str(one.op.name).rpartition(".")[2])
        elif isinstance(one, tirx.Div) and not isinstance(one.b, tirx.FloatImm):
            found.add("div")
    return found


def _within(value: Any) -> Iterator[Any]:
    """Yields an expression and all its parts, without the indices of loads."""
    from tvm import ir, tirx

    yield value
    parts: tuple[Any, ...] = ()
    if isinstance(value, ir.Call):
        parts = tuple(value.args)
    elif isinstance(value, tirx.Select):
        parts = (value.condition, value.true_value, value.false_value)
    elif isinstance(value, tirx.Cast):
        parts = (value.value,)
    elif isinstance(value, tirx.Not):
        parts = (value.a,)
    elif hasattr(value, "a") and hasattr(value, "b"):
        parts = (value.a, value.b)
    for part in parts:
        yield from _within(part)


def _cuts(value: Any, places: Sequence[Any], origin: Any) -> tuple[int, ...]:
    """See `Access.cuts`."""
    from tvm import tirx

    kinds = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
    found = [0] * len(places)
    for one in _within(value):
        if not isinstance(one, kinds):
            continue
        # The place where both sides are equal, and the one after it: one of them is where the condition changes.
        start = _difference(origin.simplify(one.a), origin.simplify(one.b))
        for at, place in enumerate(places):
            there = _difference(place.simplify(one.a), place.simplify(one.b))
            if start is None or there is None or there == start:
                continue
            step = abs(there - start)
            inclusive = isinstance(one, tirx.LE | tirx.GT) == (there > start)
            exact = isinstance(one, tirx.EQ | tirx.NE)
            equal = abs(start) // step
            found[at] = 1 if exact or start % step else math.gcd(found[at], equal + inclusive)
    return tuple(found)


def _at(variables: Sequence[Any], bound: Sequence[tuple[Any, Any]], moved: Any) -> Any:
    """Returns an analyzer of the place where each loop is at 0, except one that is at 1."""
    from tvm import tirx
    from tvm.sym import Analyzer

    analyzer = Analyzer()
    for one in variables:
        here = moved is not None and one.same_as(moved)
        analyzer.bind(one, tirx.const(int(here), "int32"))
    for variable, value in bound:
        analyzer.bind(variable, analyzer.simplify(value))
    return analyzer


def _difference(there: Any, here: Any) -> int | None:
    from tvm import tirx

    if isinstance(there, tirx.IntImm) and isinstance(here, tirx.IntImm):
        return int(there) - int(here)
    return None


def _reduced(
    body: Any, variables: Sequence[Any], places: Sequence[Any], origin: Any
) -> tuple[int, ...]:
    summed = [one.var for one in body.iter_vars if int(one.iter_type) == _REDUCED]
    return tuple(
        at
        for at, place in enumerate(places)
        if any(_difference(place.simplify(one), origin.simplify(one)) != 0 for one in summed)
    )


def _bindings(sch: Any, body: Any) -> list[tuple[Any, Any]]:
    """Returns the variables of a block with their values in terms of its loops."""
    (realized,) = _realized(sch.mod["main"].body, body)
    variables = [one.var for one in body.iter_vars]
    return list(zip(variables, realized.iter_values, strict=True))


def _realized(stmt: Any, body: Any) -> list[Any]:
    from tvm import tirx
    from tvm.s_tir import SBlockRealize

    if isinstance(stmt, tirx.SeqStmt):
        return [one for part in stmt.seq for one in _realized(part, body)]
    if isinstance(stmt, tirx.For):
        return _realized(stmt.body, body)
    if isinstance(stmt, SBlockRealize):
        found = [stmt] if stmt.block.same_as(body) else []
        return found + _realized(stmt.block.body, body)
    return []
