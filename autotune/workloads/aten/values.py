"""Tensors while a step is lowered: stored ones, seen through strides, and ones computed where they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from autotune.workloads.aten.program import Dtype
from autotune.workloads.expressions import Term, apply, integer

Indices = tuple[Term, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Strided:
    """A tensor of the step, or a part of it, seen through strides.

    Attributes:
        tensor: Its name.
        elements: How many elements that tensor has.
        shape: Sizes of the view.
        strides: Distance between neighbours along each axis, in elements.
        offset: The first element.
        dtype: Element type; truth values are stored as int32, 0 or 1.
    """

    tensor: str
    elements: int
    shape: Shape
    strides: tuple[int, ...]
    offset: int
    dtype: Dtype


@dataclass(eq=False)
class Lazy:
    """A tensor that is computed where it is read, until it is stored: from then on it is read from memory.

    Attributes:
        shape: Sizes.
        dtype: Element type.
        at: Its element at an index.
        stored: Where it has been stored; None until then.
        base: What this is a view of, where it has the same elements.
        back: Makes a view of ``base`` of one of this.
        place: The layer that computes it; empty where that is not known.
    """

    shape: Shape
    dtype: Dtype
    at: Callable[[Indices], Term]
    stored: Strided | None = None
    base: Lazy | None = None
    back: Callable[[Strided], Value | None] | None = None
    place: str = ""


Value = Strided | Lazy


def contiguous(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides of a contiguous tensor whose axes are stored in an order, slowest first; None for their own."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(range(len(shape)) if order is None else order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def is_stored(value: Strided, order: Sequence[int] | None = None) -> bool:
    """Whether a value is a whole tensor, stored in an order of its axes."""
    wanted = contiguous(value.shape, order)
    return math.prod(value.shape) == value.elements and all(
        size == 1 or have == want
        for size, have, want in zip(value.shape, value.strides, wanted, strict=True)
    )


def permuted(value: Value, axes: Sequence[int]) -> Value:
    """The same with its axes in another order."""
    shape = tuple(value.shape[axis] for axis in axes)
    if isinstance(value, Strided):
        strides = tuple(value.strides[axis] for axis in axes)
        return Strided(value.tensor, value.elements, shape, strides, value.offset, value.dtype)
    where = [list(axes).index(axis) for axis in range(len(axes))]
    return Lazy(
        shape,
        value.dtype,
        lambda at: value.at(tuple(at[one] for one in where)),
        base=value,
        back=lambda stored: permuted(stored, where),
    )


def expanded(value: Value, shape: Shape) -> Value:
    """The same, repeated along new axes in front and along axes of size 1."""
    new = len(shape) - len(value.shape)
    if tuple(value.shape) == tuple(shape):
        return value
    repeated = [n != shape[new + axis] for axis, n in enumerate(value.shape)]
    if isinstance(value, Strided):
        strides = (0,) * new + tuple(
            0 if again else stride for again, stride in zip(repeated, value.strides, strict=True)
        )
        return Strided(value.tensor, value.elements, shape, strides, value.offset, value.dtype)

    def at(indices: Indices) -> Term:
        return value.at(
            tuple(
                integer(0) if again else one
                for again, one in zip(repeated, indices[new:], strict=True)
            )
        )

    return Lazy(shape, value.dtype, at)


def windows(value: Value, axis: int, size: int, step: int) -> Value:
    """Windows along an axis, `step` apart; the elements of a window are the last axis."""
    count = (value.shape[axis] - size) // step + 1
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :], size)
    if isinstance(value, Strided):
        strides = [*value.strides, value.strides[axis]]
        strides[axis] *= step
        return Strided(
            value.tensor, value.elements, shape, tuple(strides), value.offset, value.dtype
        )

    def at(indices: Indices) -> Term:
        index = apply("add", apply("mul", indices[axis], integer(step)), indices[-1])
        return value.at((*indices[:axis], index, *indices[axis + 1 : -1]))

    return Lazy(shape, value.dtype, at)


def sliced(value: Value, axis: int, start: int, stop: int, step: int) -> Value:
    """Every ``step``-th element from ``start`` to before ``stop`` along an axis."""
    size = max(0, -(-(stop - start) // step))
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    if isinstance(value, Strided):
        strides = list(value.strides)
        offset = value.offset + start * strides[axis]
        strides[axis] *= step
        return Strided(value.tensor, value.elements, shape, tuple(strides), offset, value.dtype)

    def at(indices: Indices) -> Term:
        index = apply("add", apply("mul", indices[axis], integer(step)), integer(start))
        return value.at((*indices[:axis], index, *indices[axis + 1 :]))

    return Lazy(shape, value.dtype, at)


def reshaped(value: Value, shape: Shape) -> Value | None:
    """The same elements in another shape; None where these are no view, so that the value must be stored first.

    A value that is computed where it is read only gains and loses axes of size 1.
    """
    if tuple(value.shape) == tuple(shape):
        return value
    if isinstance(value, Strided):
        return _reshaped_strides(value, shape)
    if [n for n in value.shape if n > 1] != [n for n in shape if n > 1]:
        return None
    long = [axis for axis, n in enumerate(shape) if n > 1]
    taken = iter(long)
    where = [next(taken) if n > 1 else None for n in value.shape]

    def at(indices: Indices) -> Term:
        return value.at(tuple(integer(0) if one is None else indices[one] for one in where))

    whole = value.shape
    return Lazy(shape, value.dtype, at, base=value, back=lambda stored: reshaped(stored, whole))


def _reshaped_strides(value: Strided, shape: Shape) -> Strided | None:
    """The view as numpy finds it, on an array of which only the strides are looked at."""
    base = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), value.shape, value.strides)
    view = base.view()
    try:
        view.shape = shape
    except AttributeError:
        return None
    return Strided(
        value.tensor, value.elements, shape, tuple(view.strides), value.offset, value.dtype
    )


def radices(value: Strided) -> tuple[Shape, list[int | None], tuple[int, ...]] | None:
    """A shape of the stored tensor in which each axis of a view has an axis of its own.

    Returns:
        The shape; for each of its axes the axis of the view that runs along it, if any; and where the view begins.
        None where there is no such shape, as with windows that overlap.
    """
    axes = sorted(
        (axis for axis, n in enumerate(value.shape) if n > 1 and value.strides[axis] > 0),
        key=lambda axis: -value.strides[axis],
    )
    steps = [value.strides[axis] for axis in axes]
    whole = [value.elements, *steps]
    if any(a % b for a, b in pairwise(whole)) or len(set(steps)) < len(steps):
        return None
    shape = [a // b for a, b in pairwise(whole)]
    along: list[int | None] = list(axes)
    if not steps or steps[-1] > 1:
        shape.append(steps[-1] if steps else value.elements)
        along.append(None)
    begin, rest = [], value.offset
    for at in range(len(shape)):
        step = math.prod(shape[at + 1 :])
        begin.append(rest // step)
        rest %= step
    fits = all(
        first + (value.shape[axis] if axis is not None else 1) <= size
        for first, axis, size in zip(begin, along, shape, strict=True)
    )
    return (tuple(shape), along, tuple(begin)) if fits else None
