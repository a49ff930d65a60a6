"""Sums of elements at places that other data says: gradients of gathers, without a race."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.workloads.aten.contractions import product
from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.values import Indices, Lazy, Shape, Value, reshaped
from autotune.workloads.expressions import (
    Axis,
    Term,
    all_of,
    apply,
    clamped,
    inside,
    integer,
    number,
)

_TABLE_COST = 4
"""How much longer a step of the kernels with a table takes than one of the plain loops."""


@dataclass(frozen=True)
class Scatter:
    """Elements that are added where indices say. The loops over the elements are called taps.

    Attributes:
        shape: Sizes of the result.
        axes: Axes of the result along which the indices choose.
        taps: Sizes of the loops over the elements that the indices choose a place for.
        place: The index of a tap along each of these axes. A tap whose place is outside adds nothing.
        element: The element of a tap, at an index along the other axes of the result.
    """

    shape: Shape
    axes: tuple[int, ...]
    taps: Shape
    place: Callable[[Indices], Indices]
    element: Callable[[Indices, Indices], Term]

    @property
    def rest(self) -> Shape:
        """Sizes of the axes that no index chooses along."""
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.axes)

    @property
    def chosen(self) -> Shape:
        """Sizes of the axes that indices choose along."""
        return tuple(self.shape[axis] for axis in self.axes)


def scattered(lowering: Lowering, scatter: Scatter) -> Value:
    """Adds elements up at their places.

    Small results compare each of their places with the place of each tap. That takes a step for each place, tap
    and column, which is too long for the gradient of an embedding. Large results have a table with the first tap of
    each place. A product with the matrix that says which taps have equal places adds their elements up.

    Args:
        lowering: The step that is lowered.
        scatter: What to add where.

    Returns:
        The sums, float32; 0 where nothing was added.
    """
    places, taps = math.prod(scatter.chosen), math.prod(scatter.taps)
    columns = math.prod(scatter.rest)
    table = places * taps + taps * taps * columns + places * columns
    if places * columns * taps <= _TABLE_COST * table:
        return _compared(lowering, scatter)
    return _by_table(lowering, scatter, taps)


def _compared(lowering: Lowering, scatter: Scatter) -> Value:
    rank = len(scatter.shape)
    own = tuple(Axis(at) for at in range(rank))
    taps = tuple(Axis(rank + at) for at in range(len(scatter.taps)))
    hits = [
        apply("eq", place, own[axis])
        for place, axis in zip(scatter.place(taps), scatter.axes, strict=True)
    ]
    rest = tuple(one for axis, one in enumerate(own) if axis not in scatter.axes)
    body = apply("select", all_of(*hits), scatter.element(taps, rest), number(0.0))
    return lowering.window("sum", scatter.shape, scatter.taps, body, "float32")


def _by_table(lowering: Lowering, scatter: Scatter, taps: int) -> Value:
    def flat_place(at: Indices) -> Term:
        found = scatter.place(at)
        within = [inside(one, size) for one, size in zip(found, scatter.chosen, strict=True)]
        return apply("select", all_of(*within), _flat(found, scatter.chosen), integer(-1))

    def element(at: Indices) -> Term:
        return scatter.element(at[: len(scatter.taps)], at[len(scatter.taps) :])

    where = lowering.stored(Lazy(scatter.taps, "int32", flat_place))
    where = replace(where, shape=(taps,), strides=(1,))
    places, columns = math.prod(scatter.chosen), math.prod(scatter.rest)
    tap = Axis(1)
    hit = apply("eq", lowering.element(where, (tap,)), Axis(0))
    first = lowering.window(
        "min", (places,), (taps,), apply("select", hit, tap, integer(taps)), "int32"
    )

    def equal(at: Indices) -> Term:
        same = apply("eq", *(lowering.element(where, (one,)) for one in at))
        return apply("select", same, number(1.0), number(0.0))

    elements = lowering.stored(Lazy((*scatter.taps, *scatter.rest), "float32", element))
    elements = replace(elements, shape=(taps, columns), strides=(columns, 1))
    sums = product(lowering, Lazy((taps, taps), "float32", equal), elements)
    seen = reshaped(sums, (taps, *scatter.rest))

    def at(indices: Indices) -> Term:
        place = _flat([indices[axis] for axis in scatter.axes], scatter.chosen)
        rest = [one for axis, one in enumerate(indices) if axis not in scatter.axes]
        tap = lowering.element(first, (place,))
        row = clamped(tap, taps)
        found = (
            lowering.element(seen, (row, *rest))
            if seen is not None
            else lowering.element(sums, (row, _flat(rest, scatter.rest)))
        )
        return apply("select", apply("lt", tap, integer(taps)), found, number(0.0))

    return Lazy(scatter.shape, "float32", at)


def _flat(indices: Sequence[Term], sizes: Sequence[int]) -> Term:
    found: Term = integer(0)
    for index, size in zip(indices, sizes, strict=True):
        found = apply("add", apply("mul", found, integer(size)), index)
    return found
