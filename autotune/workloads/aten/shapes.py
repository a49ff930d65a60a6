"""ATen operators that only move elements: views, slices, padding and joins."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type, dtype_of, either
from autotune.workloads.aten.program import Dtype, Operation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.values import (
    Indices,
    Lazy,
    Shape,
    Strided,
    Value,
    contiguous,
    expanded,
    permuted,
    reshaped,
    sliced,
    windows,
)
from autotune.workloads.expressions import (
    Term,
    all_of,
    apply,
    clamped,
    inside,
    integer,
    number,
    truth,
)

_FEW_PARTS, _MOST_PARTS = 4, 24
"""Of a join: parts that may be computed where they are read, and parts that one kernel reads."""


def in_shape(lowering: Lowering, value: Value, shape: Shape) -> Value:
    """The same elements in another shape; stored first where they are no view of what there is."""
    found = reshaped(value, shape)
    if found is None and isinstance(value, Lazy):
        strides = contiguous(value.shape, lowering.natural_order(value))
        natural = Strided("", math.prod(value.shape), value.shape, strides, 0, value.dtype)
        if reshaped(natural, shape) is not None:
            found = reshaped(lowering.somehow_stored(value), shape)
    if found is None:
        found = reshaped(lowering.stored(value), shape)
    assert found is not None
    return found


@lowers("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default")
@lowers("unsqueeze.default", "squeeze.dims", "squeeze.dim", "squeeze.default")
def _view(lowering: Lowering, operation: Operation) -> Value:
    return in_shape(lowering, lowering.value(operation.first), operation.shape)


@lowers("permute.default")
def _permute(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    return permuted(value, [axis % len(value.shape) for axis in operation.arguments["dims"]])


@lowers("transpose.int", "t.default")
def _transpose(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axes = list(range(len(value.shape)))
    first = operation.arguments.get("dim0", 0) % max(1, len(axes))
    second = operation.arguments.get("dim1", 1) % max(1, len(axes))
    axes[first], axes[second] = axes[second], axes[first]
    return permuted(value, axes)


@lowers("expand.default")
def _expand(lowering: Lowering, operation: Operation) -> Value:
    return expanded(lowering.value(operation.first), operation.shape)


def _bounds(operation: Operation, size: int) -> tuple[int, int, int]:
    start, stop = operation.arguments["start"], operation.arguments["end"]
    step = operation.arguments["step"]
    return slice(start, stop, step).indices(size)


@lowers("slice.Tensor")
def _slice(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axis = operation.arguments["dim"] % len(value.shape)
    return sliced(value, axis, *_bounds(operation, value.shape[axis]))


@lowers("select.int")
def _select(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axis = operation.arguments["dim"] % len(value.shape)
    index = operation.arguments["index"] % value.shape[axis]
    return in_shape(lowering, sliced(value, axis, index, index + 1, 1), operation.shape)


@lowers("split_with_sizes.default", "split.Tensor", "unbind.int")
def _split(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    value = lowering.value(operation.first)
    axis = operation.arguments["dim"] % len(value.shape)
    sizes = [shape[axis] if len(shape) == len(value.shape) else 1 for shape in operation.shapes]
    starts = accumulate(sizes, initial=0)
    return tuple(
        in_shape(lowering, sliced(value, axis, start, start + size, 1), shape)
        for start, size, shape in zip(starts, sizes, operation.shapes, strict=False)
    )


@lowers("flip.default")
def _flip(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axes = {axis % len(value.shape) for axis in operation.arguments["dims"]}

    def at(indices: Indices) -> Term:
        return lowering.element(
            value,
            tuple(
                apply("sub", integer(size - 1), one) if axis in axes else one
                for axis, (one, size) in enumerate(zip(indices, value.shape, strict=True))
            ),
        )

    return Lazy(value.shape, value.dtype, at)


@lowers("roll.default")
def _roll(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    shifts, axes = operation.arguments["shifts"], operation.arguments["dims"]
    if not axes:
        raise lowering.refused(operation, "rolls the flattened tensor", "give it dims")
    by = {axis % len(value.shape): shift for axis, shift in zip(axes, shifts, strict=True)}

    def moved(axis: int, index: Term) -> Term:
        size = value.shape[axis]
        shifted = apply("add", index, integer(-by[axis] % size))
        return apply("mod", shifted, integer(size))

    def at(indices: Indices) -> Term:
        return lowering.element(
            value,
            tuple(moved(axis, one) if axis in by else one for axis, one in enumerate(indices)),
        )

    return Lazy(value.shape, value.dtype, at)


@lowers("repeat.default")
def _repeat(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    new = len(operation.shape) - len(value.shape)

    def at(indices: Indices) -> Term:
        return lowering.element(
            value,
            tuple(
                apply("mod", one, integer(size)) if size > 1 else integer(0)
                for one, size in zip(indices[new:], value.shape, strict=True)
            ),
        )

    return Lazy(operation.shape, value.dtype, at)


def padded(
    lowering: Lowering, value: Value, shape: Shape, before: tuple[int, ...], fill: Term
) -> Lazy:
    """A value with ``fill`` around it; negative margins cut it."""

    def at(indices: Indices) -> Term:
        places = [
            apply("add", one, integer(-margin)) for one, margin in zip(indices, before, strict=True)
        ]
        conditions: list[Term] = []
        chosen: list[Term] = []
        for place, size, margin, length in zip(places, value.shape, before, shape, strict=True):
            whole = margin <= 0 and length - margin <= size
            chosen.append(place if whole else clamped(place, size))
            if not whole:
                conditions.append(inside(place, size))
        element = lowering.element(value, tuple(chosen))
        return either(all_of(*conditions), element, fill)

    return Lazy(shape, value.dtype, at)


@lowers("constant_pad_nd.default")
def _pad(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    margins = operation.arguments["pad"]
    before = [0] * len(value.shape)
    for number_, at in enumerate(range(0, len(margins), 2)):
        before[len(value.shape) - 1 - number_] = margins[at]
    return padded(
        lowering,
        value,
        operation.shape,
        tuple(before),
        _scalar(operation.arguments["value"], value),
    )


def _scalar(value: Any, like: Value) -> Term:
    if like.dtype == "bool":
        return truth(bool(value))
    return as_type(number(float(value)), like.dtype) if like.dtype == "float32" else integer(value)


@lowers("cat.default")
def _cat(lowering: Lowering, operation: Operation) -> Value:
    listed = operation.arguments["tensors"]
    parts = [value for value in map(lowering.value, listed) if math.prod(value.shape)]
    axis = operation.arguments["dim"] % len(operation.shape)
    return joined(lowering, parts, axis, dtype_of(operation))


def joined(lowering: Lowering, parts: list[Value], axis: int, dtype: Dtype) -> Value:
    """Tensors one after the other along an axis; many are stored first, so that no kernel reads too much."""
    if len(parts) > _FEW_PARTS:
        parts = [lowering.somehow_stored(part) for part in parts]
    if len(parts) > _MOST_PARTS:
        groups = [parts[at : at + _MOST_PARTS] for at in range(0, len(parts), _MOST_PARTS)]
        wide = [joined(lowering, group, axis, dtype) for group in groups]
        return joined(lowering, [lowering.somehow_stored(one) for one in wide], axis, dtype)
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    starts = list(accumulate((part.shape[axis] for part in parts), initial=0))

    def at(indices: Indices) -> Term:
        result: Term | None = None
        for part, start in reversed(list(zip(parts, starts[:-1], strict=True))):
            size = part.shape[axis]
            place = apply("add", indices[axis], integer(-start))
            if len(parts) > 1:
                place = clamped(place, size)
            element = as_type(
                lowering.element(part, (*indices[:axis], place, *indices[axis + 1 :])), dtype
            )
            if result is None:
                result = element
            else:
                before = apply("lt", indices[axis], integer(start + size))
                result = either(before, element, result)
        assert result is not None
        return result

    return Lazy(tuple(shape), dtype, at)


@lowers("slice_scatter.default")
def _slice_scatter(lowering: Lowering, operation: Operation) -> Value:
    base, source = (lowering.value(operation.arguments[key]) for key in ("self", "src"))
    axis = operation.arguments["dim"] % len(base.shape)
    start, stop, step = _bounds(operation, base.shape[axis])
    return _scattered(lowering, base, source, axis, start, stop, step)


@lowers("select_scatter.default")
def _select_scatter(lowering: Lowering, operation: Operation) -> Value:
    base, source = (lowering.value(operation.arguments[key]) for key in ("self", "src"))
    axis = operation.arguments["dim"] % len(base.shape)
    index = operation.arguments["index"] % base.shape[axis]
    whole = (*base.shape[:axis], 1, *base.shape[axis + 1 :])
    return _scattered(lowering, base, in_shape(lowering, source, whole), axis, index, index + 1, 1)


def _scattered(
    lowering: Lowering, base: Value, source: Value, axis: int, start: int, stop: int, step: int
) -> Value:
    """``base`` with ``source`` in the place of a slice of it."""
    size = source.shape[axis]

    def at(indices: Indices) -> Term:
        distance = apply("add", indices[axis], integer(-start))
        conditions = [inside(distance, stop - start)]
        place, more = _counted(distance, base.shape[axis], step, size)
        conditions += more
        element = lowering.element(source, (*indices[:axis], place, *indices[axis + 1 :]))
        return either(all_of(*conditions), element, lowering.element(base, indices))

    return Lazy(base.shape, base.dtype, at)


def _counted(distance: Term, extent: int, step: int, count: int) -> tuple[Term, list[Term]]:
    """The number of a step, of `count` along an axis, and what must hold if one ends at that distance."""
    if step == 1:
        return clamped(distance, count), []
    safe = clamped(distance, extent)
    place = clamped(apply("floordiv", safe, integer(step)), count)
    return place, [apply("eq", apply("mod", safe, integer(step)), integer(0))]


@lowers("as_strided.default")
def _as_strided(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.stored(lowering.value(operation.first))
    strides = tuple(operation.arguments["stride"])
    offset = operation.arguments["storage_offset"] or 0
    return Strided(value.tensor, value.elements, operation.shape, strides, offset, value.dtype)


@lowers("as_strided_scatter.default")
def _as_strided_scatter(lowering: Lowering, operation: Operation) -> Value:
    """``self`` with ``src`` in the place of a strided view of it; the gradient of ``as_strided`` is such."""
    base, source = (lowering.value(operation.arguments[key]) for key in ("self", "src"))
    offset = operation.arguments["storage_offset"] or 0
    strides = operation.arguments["stride"]
    long = sorted(
        ((stride, axis) for axis, stride in enumerate(strides) if source.shape[axis] > 1),
        reverse=True,
    )
    # The elements that are reached within one step of an axis, by the axes of smaller strides.
    reach = 1
    for stride, axis in reversed(long):
        if stride < reach:
            raise lowering.refused(operation, "writes elements that overlap", "use unfold and fold")
        reach = stride * (source.shape[axis] - 1) + reach
    natural = contiguous(base.shape)

    def at(indices: Indices) -> Term:
        place: Term = integer(-offset)
        for index, stride in zip(indices, natural, strict=True):
            place = apply("add", place, apply("mul", index, integer(stride)))
        conditions = [inside(place, reach)]
        rest: Term = clamped(place, reach)
        found: list[Term] = [integer(0)] * len(source.shape)
        for stride, axis in long:
            found[axis] = apply("floordiv", rest, integer(stride))
            rest = apply("mod", rest, integer(stride))
            conditions.append(inside(found[axis], source.shape[axis]))
            found[axis] = clamped(found[axis], source.shape[axis])
        conditions.append(apply("eq", rest, integer(0)))
        element = lowering.element(source, tuple(found))
        return either(all_of(*conditions), element, lowering.element(base, indices))

    return Lazy(base.shape, base.dtype, at)


@lowers("unfold.default")
def _unfold(lowering: Lowering, operation: Operation) -> Value:
    value, arguments = lowering.value(operation.first), operation.arguments
    axis = arguments["dimension"] % len(value.shape)
    return windows(value, axis, arguments["size"], arguments["step"])


@lowers("unfold_backward.default")
def _unfold_backward(lowering: Lowering, operation: Operation) -> Value:
    """Each element is the sum of what the windows that contain it have in its place."""
    arguments = operation.arguments
    gradient = lowering.value(arguments["grad_in"])
    size, step, shape = arguments["size"], arguments["step"], operation.shape
    axis = arguments["dim"] % len(shape)
    count = gradient.shape[axis]

    def at(indices: Indices) -> Term:
        *outer, within = indices
        first = apply("sub", outer[axis], within)
        place, more = _counted(first, shape[axis], step, count)
        window = (*outer[:axis], place, *outer[axis + 1 :], within)
        conditions = [inside(first, (count - 1) * step + 1), *more]
        return either(all_of(*conditions), lowering.element(gradient, window), number(0.0))

    every = Lazy((*shape, size), gradient.dtype, at)
    return lowering.reduce("sum", every, [len(shape)], keep=False)
