"""Pooling and interpolation."""

from __future__ import annotations

from typing import Any

from autotune.workloads.aten.contractions import whole
from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type
from autotune.workloads.aten.program import Operation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.shapes import in_shape
from autotune.workloads.aten.values import Indices, Lazy, Shape, Strided, Value, contiguous
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
from autotune.workloads.operators import MaxPool2d

Pair = tuple[int, int]


def _pair(given: Any) -> Pair:
    return (int(given[0]), int(given[-1]))


def _max_pool(lowering: Lowering, operation: Operation, x: Shape) -> MaxPool2d:
    arguments = operation.arguments
    if _pair(arguments["dilation"]) != (1, 1):
        raise lowering.refused(operation, "is dilated", "use dilation=1")
    window = _pair(arguments["kernel_size"])
    return MaxPool2d(
        x[0], x[1], x[2], x[3], *window, _pair(arguments["stride"] or window),
        _pair(arguments["padding"]), bool(arguments["ceil_mode"]), lowering.channels_last,
    )  # fmt: skip


@lowers("max_pool2d_with_indices.default")
def _max_pool_forward(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    x = lowering.images(lowering.value(operation.arguments["self"]))
    pool, order = _max_pool(lowering, operation, x.shape), lowering.image_order()
    stored = tuple(operation.shape[axis] for axis in order)
    y, index = lowering.define(stored), lowering.define_int(stored)
    lowering.run_kernel(pool, "forward", (x.tensor,), (y, index))
    values = whole(y, operation.shape, order)
    strides = contiguous(operation.shape, order)
    return values, Strided(index, values.elements, operation.shape, strides, 0, "int32")


@lowers("max_pool2d_with_indices_backward.default")
def _max_pool_backward(lowering: Lowering, operation: Operation) -> Value:
    arguments, order = operation.arguments, lowering.image_order()
    dy = lowering.images(lowering.value(arguments["grad_output"]))
    index = lowering.value(arguments["indices"])
    assert isinstance(index, Strided)
    pool = _max_pool(lowering, operation, operation.shape)
    dx = lowering.define(tuple(operation.shape[axis] for axis in order))
    lowering.run_kernel(pool, "data_grad", (dy.tensor, index.tensor), (dx,))
    return whole(dx, operation.shape, order)


def _windowed(lowering: Lowering, shape: Shape, reduced: tuple[int, ...], body: Any) -> Value:
    """A sum over windows, its result stored as images are; ``body`` takes the indices and the window's."""
    order = lowering.image_order()
    where = {axis: at for at, axis in enumerate(order)}
    indices = tuple(Axis(where[axis]) for axis in range(4))
    taps = tuple(Axis(4 + at) for at in range(len(reduced)))
    stored = tuple(shape[axis] for axis in order)
    found = lowering.window("sum", stored, reduced, body(indices, taps), "float32")
    return Strided(found.tensor, found.elements, shape, contiguous(shape, order), 0, "float32")


@lowers("avg_pool2d.default")
def _avg_pool(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.images(_four(lowering, lowering.value(operation.arguments["self"])))
    shape = _four_shape(operation.shape)
    window, step, pad, counts = _average(operation, x.shape)

    def body(at: Indices, taps: Indices) -> Term:
        places = [
            apply("add", apply("mul", at[2 + d], integer(step[d])),
                  apply("add", taps[d], integer(-pad[d])))
            for d in range(2)
        ]  # fmt: skip
        return _padded_element(lowering, x, at, places, counts(at[2], at[3]))

    return in_shape(lowering, _windowed(lowering, shape, window, body), operation.shape)


def _padded_element(
    lowering: Lowering, x: Value, at: Indices, places: list[Term], share: Term
) -> Term:
    safe = tuple(clamped(one, size) for one, size in zip(places, x.shape[2:], strict=True))
    element = apply("mul", lowering.element(x, (at[0], at[1], *safe)), share)
    held = all_of(*(inside(one, size) for one, size in zip(places, x.shape[2:], strict=True)))
    return apply("select", held, element, number(0.0))


@lowers("avg_pool2d_backward.default")
def _avg_pool_backward(lowering: Lowering, operation: Operation) -> Value:
    dy = lowering.images(_four(lowering, lowering.value(operation.arguments["grad_output"])))
    shape = _four_shape(operation.shape)
    window, step, pad, counts = _average(operation, shape)

    def body(at: Indices, taps: Indices) -> Term:
        places, conditions = [], []
        for d in range(2):
            size = dy.shape[2 + d]
            start = apply("sub", apply("add", at[2 + d], integer(pad[d])), taps[d])
            conditions.append(apply("le", integer(0), start))
            safe = apply("max", start, integer(0))
            conditions.append(apply("eq", apply("mod", safe, integer(step[d])), integer(0)))
            place = apply("floordiv", safe, integer(step[d]))
            conditions.append(apply("lt", place, integer(size)))
            places.append(clamped(place, size))
        share = counts(places[0], places[1])
        element = apply("mul", lowering.element(dy, (at[0], at[1], *places)), share)
        return apply("select", all_of(*conditions), element, number(0.0))

    return in_shape(lowering, _windowed(lowering, shape, window, body), operation.shape)


def _average(operation: Operation, x: Shape) -> tuple[Pair, Pair, Pair, Any]:
    """Window, step and padding of an average, and the weight of an element by the place of its window."""
    arguments = operation.arguments
    window = _pair(arguments["kernel_size"])
    step, pad = _pair(arguments["stride"] or window), _pair(arguments["padding"])
    fixed, include = arguments["divisor_override"], arguments["count_include_pad"]

    def covered(at: Term, d: int) -> Term:
        """Elements of a window along an axis: of the image, or of the padded image."""
        first = apply("sub", apply("mul", at, integer(step[d])), integer(pad[d]))
        margin = pad[d] if include else 0
        low = first if include else apply("max", first, integer(0))
        last = apply("min", apply("add", first, integer(window[d])), integer(x[2 + d] + margin))
        return apply("sub", last, low)

    plain = (pad == (0, 0) or include) and not arguments["ceil_mode"]

    def counts(row: Term, column: Term) -> Term:
        if fixed is not None:
            return number(1.0 / fixed)
        if plain:
            return number(1.0 / (window[0] * window[1]))
        count = apply("mul", covered(row, 0), covered(column, 1))
        return apply("div", number(1.0), as_type(count, "float32"))

    return window, step, pad, counts


@lowers("_adaptive_avg_pool2d.default")
def _adaptive(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.images(_four(lowering, lowering.value(operation.arguments["self"])))
    shape = _four_shape(operation.shape)
    widest = tuple(_widest(x.shape[2 + d], shape[2 + d]) for d in range(2))

    def body(at: Indices, taps: Indices) -> Term:
        places: list[Term] = []
        count: Term = integer(1)
        conditions = []
        for d in range(2):
            first, last = _bin(at[2 + d], x.shape[2 + d], shape[2 + d])
            place = apply("add", first, taps[d])
            conditions.append(apply("lt", place, last))
            places.append(clamped(place, x.shape[2 + d]))
            count = apply("mul", count, apply("sub", last, first))
        element = lowering.element(x, (at[0], at[1], *places))
        share = apply("div", element, as_type(count, "float32"))
        return apply("select", all_of(*conditions), share, number(0.0))

    return in_shape(lowering, _windowed(lowering, shape, widest, body), operation.shape)


@lowers("_adaptive_avg_pool2d_backward.default")
def _adaptive_backward(lowering: Lowering, operation: Operation) -> Value:
    dy = lowering.images(_four(lowering, lowering.value(operation.arguments["grad_output"])))
    shape = _four_shape(operation.shape)
    bins = dy.shape[2:]

    def body(at: Indices, taps: Indices) -> Term:
        count: Term = integer(1)
        conditions = []
        for d in range(2):
            first, last = _bin(taps[d], shape[2 + d], bins[d])
            conditions += [apply("le", first, at[2 + d]), apply("lt", at[2 + d], last)]
            count = apply("mul", count, apply("sub", last, first))
        element = lowering.element(dy, (at[0], at[1], *taps))
        share = apply("div", element, as_type(count, "float32"))
        return apply("select", all_of(*conditions), share, number(0.0))

    return in_shape(lowering, _windowed(lowering, shape, bins, body), operation.shape)


def _bin(at: Term, size: int, bins: int) -> tuple[Term, Term]:
    """The first element of an adaptive window, and the one after its last."""
    first = apply("floordiv", apply("mul", at, integer(size)), integer(bins))
    after = apply("mul", apply("add", at, integer(1)), integer(size))
    last = apply("floordiv", apply("add", after, integer(bins - 1)), integer(bins))
    return first, last


def _widest(size: int, bins: int) -> int:
    return max(-(-(at + 1) * size // bins) - at * size // bins for at in range(bins))


def _four(lowering: Lowering, value: Value) -> Value:
    return in_shape(lowering, value, _four_shape(value.shape))


def _four_shape(shape: Shape) -> Shape:
    return shape if len(shape) == 4 else (1, *shape)


def _scales(operation: Operation, x: Shape, y: Shape) -> list[float]:
    """How far apart neighbours of the result lie in the input."""
    given = operation.arguments.get("scale_factors") or (
        operation.arguments.get("scales_h"),
        operation.arguments.get("scales_w"),
    )
    aligned = bool(operation.arguments.get("align_corners", False))
    found = []
    for d in range(2):
        if aligned:
            found.append((x[2 + d] - 1) / (y[2 + d] - 1) if y[2 + d] > 1 else 0.0)
        elif factor := given[d]:
            found.append(1.0 / factor)
        else:
            found.append(x[2 + d] / y[2 + d])
    return found


@lowers("upsample_nearest2d.vec", "upsample_nearest2d.default")
def _nearest(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.value(operation.first)
    scales = _scales(operation, x.shape, operation.shape)

    def at(indices: Indices) -> Term:
        places = [
            _nearest_place(indices[2 + d], scales[d], x.shape[2 + d], operation.shape[2 + d])
            for d in range(2)
        ]
        return lowering.element(x, (*indices[:2], *places))

    return Lazy(operation.shape, x.dtype, at)


def _nearest_place(at: Term, scale: float, size: int, length: int) -> Term:
    """The element that the nearest neighbour is; of whole factors in whole numbers."""
    if length % size == 0 and abs(scale * length - size) < 1e-9:
        return apply("floordiv", at, integer(length // size))
    scaled = apply("mul", apply("float", at), number(scale))
    return clamped(apply("int", scaled), size)


@lowers("upsample_nearest2d_backward.default")
def _nearest_backward(lowering: Lowering, operation: Operation) -> Value:
    dy = lowering.images(lowering.value(operation.arguments["grad_output"]))
    shape = operation.shape
    scales = _scales(operation, shape, dy.shape)
    spans = tuple(int(1.0 / scale) + 2 for scale in scales)

    def body(at: Indices, taps: Indices) -> Term:
        places, conditions = [], []
        for d in range(2):
            size, length = shape[2 + d], dy.shape[2 + d]
            first = apply("int", apply("mul", apply("float", at[2 + d]), number(1.0 / scales[d])))
            first = clamped(first, length)
            place = apply("add", first, taps[d])
            safe = clamped(place, length)
            own = _nearest_place(safe, scales[d], size, length)
            conditions += [inside(place, length), apply("eq", own, at[2 + d])]
            places.append(safe)
        element = lowering.element(dy, (at[0], at[1], *places))
        return apply("select", all_of(*conditions), element, number(0.0))

    return _windowed(lowering, shape, spans, body)


@lowers("upsample_bilinear2d.vec", "upsample_bilinear2d.default")
def _bilinear(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.value(operation.first)
    scales = _scales(operation, x.shape, operation.shape)
    aligned = bool(operation.arguments["align_corners"])

    def at(indices: Indices) -> Term:
        ways = [_neighbours(indices[2 + d], scales[d], x.shape[2 + d], aligned) for d in range(2)]
        total: Term | None = None
        for row, vertical in ways[0]:
            for column, horizontal in ways[1]:
                element = lowering.element(x, (*indices[:2], row, column))
                part = apply("mul", element, apply("mul", vertical, horizontal))
                total = part if total is None else apply("add", total, part)
        assert total is not None
        return total

    return Lazy(operation.shape, "float32", at)


def _source_place(at: Term, scale: float, aligned: bool) -> Term:
    """Where an element of the result lies in the input, not below 0."""
    if aligned:
        return apply("mul", apply("float", at), number(scale))
    middle = apply("add", apply("float", at), number(0.5))
    place = apply("sub", apply("mul", middle, number(scale)), number(0.5))
    return apply("max", place, number(0.0))


def _neighbours(at: Term, scale: float, size: int, aligned: bool) -> list[tuple[Term, Term]]:
    """The two elements that an interpolation is between, and their weights."""
    place = _source_place(at, scale, aligned)
    first = clamped(apply("int", place), size)
    share = apply("sub", place, apply("float", first))
    share = apply("min", apply("max", share, number(0.0)), number(1.0))
    second = clamped(apply("add", first, integer(1)), size)
    return [(first, apply("sub", number(1.0), share)), (second, share)]


@lowers("upsample_bilinear2d_backward.default")
def _bilinear_backward(lowering: Lowering, operation: Operation) -> Value:
    dy = lowering.images(lowering.value(operation.arguments["grad_output"]))
    shape, aligned = operation.shape, bool(operation.arguments["align_corners"])
    scales = _scales(operation, shape, dy.shape)
    spans = tuple(
        dy.shape[2 + d] if not scale else min(dy.shape[2 + d], int(2.0 / scale) + 3)
        for d, scale in enumerate(scales)
    )

    def body(at: Indices, taps: Indices) -> Term:
        places, weight, conditions = [], None, []
        for d in range(2):
            size, length = shape[2 + d], dy.shape[2 + d]
            if spans[d] == length:
                place: Term = taps[d]
            else:
                before = apply("float", apply("add", at[2 + d], integer(-1)))
                start = apply("mul", before, number(1.0 / scales[d]))
                first = apply("int", apply("max", start, number(0.0)))
                first = apply("add", clamped(first, length), integer(-1))
                place = apply("add", first, taps[d])
                conditions.append(inside(place, length))
                place = clamped(place, length)
            own: Term = number(0.0)
            for element, share in _neighbours(place, scales[d], size, aligned):
                hit = apply("eq", element, at[2 + d])
                own = apply("add", own, apply("select", hit, share, number(0.0)))
            weight = own if weight is None else apply("mul", weight, own)
            places.append(place)
        assert weight is not None
        element = apply("mul", lowering.element(dy, (at[0], at[1], *places)), weight)
        return apply("select", all_of(*conditions), element, number(0.0))

    return _windowed(lowering, shape, spans, body)
