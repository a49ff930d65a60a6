"""Gathers and scatters."""

from __future__ import annotations

from typing import Any

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type, dtype_of
from autotune.workloads.aten.program import Operation, Ref
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.scattering import Scatter, scattered
from autotune.workloads.aten.values import Indices, Lazy, Shape, Value, expanded
from autotune.workloads.expressions import Axis, Term, all_of, apply, clamped, integer, number


@lowers("gather.default")
def _gather(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.arguments["self"])
    index = lowering.value(operation.arguments["index"])
    axis = operation.arguments["dim"] % max(1, len(value.shape))

    def at(indices: Indices) -> Term:
        place = clamped(lowering.element(index, indices), value.shape[axis])
        return lowering.element(value, (*indices[:axis], place, *indices[axis + 1 :]))

    return Lazy(operation.shape, value.dtype, at)


@lowers("embedding.default")
def _embedding(lowering: Lowering, operation: Operation) -> Value:
    weight = lowering.value(operation.arguments["weight"])
    index = lowering.value(operation.arguments["indices"])

    def at(indices: Indices) -> Term:
        row = clamped(lowering.element(index, indices[:-1]), weight.shape[0])
        return lowering.element(weight, (row, indices[-1]))

    return Lazy(operation.shape, "float32", at)


@lowers("embedding_dense_backward.default")
def _embedding_backward(lowering: Lowering, operation: Operation) -> Value:
    dy = lowering.somehow_stored(lowering.value(operation.arguments["grad_output"]))
    index = lowering.somehow_stored(lowering.value(operation.arguments["indices"]))
    skipped = operation.arguments["padding_idx"]
    if operation.arguments["scale_grad_by_freq"]:
        raise lowering.refused(operation, "scales gradients by frequency", "leave that out")

    def row(taps: Indices) -> Indices:
        found = lowering.element(index, taps)
        if skipped >= 0:
            found = apply("select", apply("eq", found, integer(skipped)), integer(-1), found)
        return (found,)

    added = Scatter(
        operation.shape,
        (0,),
        index.shape,
        row,
        lambda taps, rest: lowering.element(dy, (*taps, *rest)),
    )
    return scattered(lowering, added)


@lowers("scatter.value", "scatter.src", "scatter_add.default")
def _scatter(lowering: Lowering, operation: Operation) -> Value:
    base = lowering.value(operation.arguments["self"])
    index = lowering.value(operation.arguments["index"])
    axis = operation.arguments["dim"] % len(base.shape)
    source = operation.arguments.get("src", operation.arguments.get("value"))
    count = index.shape[axis]
    adds = "scatter_add" in operation.operator
    if not adds and count > 1:
        raise lowering.refused(operation, "writes several elements", "use scatter_add or one_hot")

    def element(indices: Indices, tap: Term) -> Term:
        places, conditions = [], []
        for other, (one, size) in enumerate(zip(indices, index.shape, strict=True)):
            if other == axis:
                places.append(tap)
            elif size < base.shape[other]:
                conditions.append(apply("lt", one, integer(size)))
                places.append(clamped(one, size))
            else:
                places.append(one)
        hit = apply("eq", lowering.element(index, tuple(places)), indices[axis])
        given = (
            lowering.element(lowering.value(source), tuple(places))
            if isinstance(source, Ref)
            else as_type(number(float(source)), base.dtype)
        )
        otherwise: Term = number(0.0) if adds else lowering.element(base, indices)
        return apply("select", all_of(*conditions, hit), given, otherwise)

    if not adds:
        return Lazy(base.shape, base.dtype, lambda at: element(at, integer(0)))
    own = tuple(Axis(at) for at in range(len(base.shape)))
    body = element(own, Axis(len(base.shape)))
    added = lowering.window("sum", base.shape, (count,), body, "float32")
    return Lazy(
        base.shape,
        "float32",
        lambda at: apply("add", lowering.element(base, at), lowering.element(added, at)),
    )


@lowers("index.Tensor", "_unsafe_index.Tensor")
def _index(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.arguments["self"])
    chosen, first, between = _indexed(lowering, operation, value)

    def at(indices: Indices) -> Term:
        inner = indices[first : first + len(between)]
        rest = [*indices[:first], *indices[first + len(between) :]]
        return lowering.element(value, _places(lowering, value, chosen, inner, rest))

    return Lazy(operation.shape, value.dtype, at)


def _indexed(
    lowering: Lowering, operation: Operation, value: Value
) -> tuple[list[Value | None], int, Shape]:
    """The index of each axis, where their axes stand in the result, and the shape that they have together."""
    listed = list(operation.arguments["indices"])
    chosen: list[Value | None] = [None if one is None else lowering.value(one) for one in listed]
    chosen += [None] * (len(value.shape) - len(chosen))
    given = [one for one in chosen if one is not None]
    if any(one.dtype == "bool" for one in given):
        raise lowering.refused(operation, "selects by a mask", "use torch.where")
    rank = max(len(one.shape) for one in given)
    shape = tuple(
        max((one.shape[at - rank] if rank - at <= len(one.shape) else 1) for one in given)
        for at in range(rank)
    )
    where = [axis for axis, one in enumerate(chosen) if one is not None]
    together = where == list(range(where[0], where[0] + len(where)))
    chosen = [None if one is None else expanded(one, shape) for one in chosen]
    return chosen, (where[0] if together else 0), shape


def _places(
    lowering: Lowering,
    value: Value,
    chosen: list[Value | None],
    inner: Indices,
    rest: list[Term],
) -> Indices:
    given = iter(rest)
    places = []
    for size, index in zip(value.shape, chosen, strict=True):
        if index is None:
            places.append(next(given))
            continue
        found = lowering.element(index, inner)
        negative = apply("lt", found, integer(0))
        wrapped = apply("add", clamped_below(found, size), integer(size))
        places.append(clamped(apply("select", negative, wrapped, found), size))
    return tuple(places)


def clamped_below(index: Term, size: int) -> Term:
    """An index that is brought into -size .. size - 1."""
    return apply("min", apply("max", index, integer(-size)), integer(size - 1))


@lowers("index_put.default", "_unsafe_index_put.default")
def _index_put(lowering: Lowering, operation: Operation) -> Value:
    base = lowering.value(operation.arguments["self"])
    if not operation.arguments["accumulate"]:
        raise lowering.refused(operation, "writes where indices say", "use scatter_add or where")
    chosen, first, between = _indexed(lowering, operation, base)
    plain = [axis for axis, one in enumerate(chosen) if one is None]
    shape = (
        *(base.shape[axis] for axis in plain[:first]),
        *between,
        *(base.shape[axis] for axis in plain[first:]),
    )
    values = lowering.somehow_stored(expanded(lowering.value(operation.arguments["values"]), shape))

    def place(taps: Indices) -> Indices:
        found = _places(lowering, base, chosen, taps, [integer(0)] * len(plain))
        return tuple(one for one, index in zip(found, chosen, strict=True) if index is not None)

    added = scattered(
        lowering,
        Scatter(
            base.shape,
            tuple(axis for axis, one in enumerate(chosen) if one is not None),
            between,
            place,
            lambda taps, rest: lowering.element(values, (*rest[:first], *taps, *rest[first:])),
        ),
    )
    return Lazy(
        base.shape,
        dtype_of(operation),
        lambda at: apply("add", lowering.element(base, at), lowering.element(added, at)),
    )


@lowers("index_select.default")
def _index_select(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.arguments["self"])
    index = lowering.value(operation.arguments["index"])
    axis = operation.arguments["dim"] % len(value.shape)

    def at(indices: Indices) -> Term:
        found: Any = lowering.element(index, (indices[axis],))
        place = clamped(found, value.shape[axis])
        return lowering.element(value, (*indices[:axis], place, *indices[axis + 1 :]))

    return Lazy(operation.shape, value.dtype, at)


@lowers("replication_pad1d_backward.default", "replication_pad2d_backward.default")
@lowers("reflection_pad1d_backward.default", "reflection_pad2d_backward.default")
def _pad_backward(lowering: Lowering, operation: Operation) -> Value:
    """Each element gathers what was padded with it: each place of the result along the padded axes is looked at."""
    dy = lowering.somehow_stored(lowering.value(operation.arguments["grad_output"]))
    margins, rank = operation.arguments["padding"], len(dy.shape)
    padded = [rank - 1 - at // 2 for at in range(0, len(margins), 2)]
    own = [Axis(at) for at in range(rank)]
    places: list[Term] = list(own)
    hits = []
    for number_, axis in enumerate(padded):
        tap = Axis(rank + number_)
        place = apply("add", tap, integer(-margins[2 * number_]))
        size = operation.shape[axis]
        if "reflection" in operation.operator:
            place = apply("abs", place)
            mirrored = apply("sub", integer(2 * (size - 1)), place)
            place = apply("min", place, mirrored)
        hits.append(apply("eq", clamped(place, size), own[axis]))
        places[axis] = tap
    body = apply("select", all_of(*hits), lowering.element(dy, tuple(places)), number(0.0))
    taps = tuple(dy.shape[axis] for axis in padded)
    return lowering.window("sum", operation.shape, taps, body, "float32")
