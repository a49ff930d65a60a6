"""ATen operators that reduce over axes."""

from __future__ import annotations

import math
from typing import Any

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type, dtype_of, pointwise
from autotune.workloads.aten.program import Operation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.shapes import in_shape
from autotune.workloads.aten.values import Lazy, Strided, Value, is_stored
from autotune.workloads.expressions import Axis, Term, apply, integer, number
from autotune.workloads.operators import Bias


def axes_of(operation: Operation, rank: int) -> list[int]:
    """The axes that an operation is told to reduce; all where it is told none."""
    given: Any = operation.arguments.get("dim")
    if given is None or given == ():
        return list(range(rank))
    listed = given if isinstance(given, tuple) else (given,)
    return sorted(axis % max(1, rank) for axis in listed) if rank else []


def _keep(operation: Operation) -> bool:
    return bool(operation.arguments.get("keepdim", False))


def converted(lowering: Lowering, value: Value, dtype: Any) -> Value:
    """The value in another element type."""
    if value.dtype == dtype:
        return value
    return pointwise(lowering, value.shape, dtype, lambda x: as_type(x, dtype), value)


@lowers("sum.dim_IntList", "sum.default")
def _sum(lowering: Lowering, operation: Operation) -> Value:
    value = converted(lowering, lowering.value(operation.first), dtype_of(operation))
    axes = axes_of(operation, len(value.shape))
    kept = [axis for axis, n in enumerate(value.shape) if axis not in axes and n > 1]
    if isinstance(value, Strided) and value.dtype == "float32" and len(kept) == 1:
        found = column_sum(lowering, value, kept[0])
        if found is not None:
            return in_shape(lowering, found, operation.shape)
    return lowering.reduce("sum", value, axes, keep=_keep(operation))


def column_sum(lowering: Lowering, value: Strided, axis: int) -> Strided | None:
    """Sums a stored tensor over all axes but one, as the gradient of a bias is; None where it is not stored so."""
    rest = [other for other in range(len(value.shape)) if other != axis]
    columns, rows = value.shape[axis], math.prod(value.shape[other] for other in rest)
    if rows < 2:
        return None
    rest.sort(key=lambda other: -value.strides[other])
    if is_stored(value, [*rest, axis]):
        operator = Bias(1, columns, rows, relu=False, channels_last=True)
    elif is_stored(value, [rest[0], axis, *rest[1:]]):
        samples = value.shape[rest[0]]
        operator = Bias(samples, columns, rows // samples, relu=False)
    else:
        return None
    (name,) = lowering.call(operator, "weight_grad", (value,), (columns,))
    return Strided(name, columns, (columns,), (1,), 0, "float32")


@lowers("mean.dim", "mean.default")
def _mean(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axes = axes_of(operation, len(value.shape))
    return mean(lowering, value, axes, keep=_keep(operation))


def mean(lowering: Lowering, value: Value, axes: list[int], *, keep: bool) -> Value:
    """The mean over axes: the sum, scaled."""
    count = math.prod(value.shape[axis] for axis in axes)
    total = lowering.reduce("sum", value, axes, keep=keep)
    return pointwise(
        lowering, total.shape, "float32", lambda x: apply("mul", x, number(1 / count)), total
    )


@lowers("amax.default", "max.default", "amin.default", "min.default")
def _extreme(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    combiner: Any = operation.operator.split(".")[1].removeprefix("a")
    axes = axes_of(operation, len(value.shape))
    return lowering.reduce(combiner, value, axes, keep=_keep(operation))


@lowers("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims")
def _truth(lowering: Lowering, operation: Operation) -> Value:
    value = converted(
        lowering, converted(lowering, lowering.value(operation.first), "bool"), "int32"
    )
    combiner: Any = "max" if ".any." in operation.operator else "min"
    axes = axes_of(operation, len(value.shape))
    found = lowering.reduce(combiner, value, axes, keep=_keep(operation))
    return Strided(found.tensor, found.elements, found.shape, found.strides, 0, "bool")


@lowers("max.dim", "min.dim")
def _extreme_with_index(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    value = lowering.somehow_stored(lowering.value(operation.first))
    axis = operation.arguments["dim"] % len(value.shape)
    combiner: Any = operation.operator.split(".")[1]
    found = lowering.reduce(combiner, value, [axis], keep=True)
    index = _index_of(lowering, value, found, axis)
    if _keep(operation):
        return found, index
    return tuple(in_shape(lowering, one, operation.shapes[0]) for one in (found, index))


@lowers("argmax.default", "argmin.default")
def _arg_extreme(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.somehow_stored(lowering.value(operation.first))
    given = operation.arguments["dim"]
    if given is None:
        value = lowering.stored(in_shape(lowering, value, (math.prod(value.shape),)))
        given = 0
    axis = given % len(value.shape)
    combiner: Any = operation.operator.split(".")[1].removeprefix("arg")
    found = lowering.reduce(combiner, value, [axis], keep=True)
    return in_shape(lowering, _index_of(lowering, value, found, axis), operation.shape)


def _index_of(lowering: Lowering, value: Strided, extreme: Strided, axis: int) -> Strided:
    """The first index along an axis at which a value is its extreme."""
    size = value.shape[axis]

    def at(indices: tuple[Term, ...]) -> Term:
        lowest = (*indices[:axis], integer(0), *indices[axis + 1 :])
        same = apply("eq", lowering.element(value, indices), lowering.element(extreme, lowest))
        return apply("select", same, indices[axis], integer(size - 1))

    return lowering.reduce("min", Lazy(value.shape, "int32", at), [axis], keep=True)


@lowers("var.correction", "var_mean.correction")
def _var(lowering: Lowering, operation: Operation) -> Value | tuple[Value, ...]:
    value = lowering.value(operation.first)
    axes = axes_of(operation, len(value.shape))
    given = operation.arguments["correction"]
    count = math.prod(value.shape[axis] for axis in axes) - (1 if given is None else given)
    average = mean(lowering, value, axes, keep=True)
    deviation = squared_deviation(lowering, value, average)
    total = lowering.reduce("sum", deviation, axes, keep=_keep(operation))
    variance = pointwise(
        lowering, total.shape, "float32", lambda x: apply("mul", x, number(1 / count)), total
    )
    if ".var." in operation.operator:
        return variance
    return variance, mean(lowering, value, axes, keep=_keep(operation))


def squared_deviation(lowering: Lowering, value: Value, average: Value) -> Lazy:
    """The squares of the distances to a mean."""

    def body(x: Term, m: Term) -> Term:
        distance = apply("sub", x, m)
        return apply("mul", distance, distance)

    return pointwise(lowering, value.shape, "float32", body, value, average)


@lowers("_softmax.default", "_log_softmax.default")
def _softmax(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    axis = operation.arguments["dim"] % len(value.shape)
    largest = lowering.reduce("max", value, [axis], keep=True)

    def raised(x: Term, m: Term) -> Term:
        return apply("exp", apply("sub", x, m))

    powers: Value = pointwise(lowering, value.shape, "float32", raised, value, largest)
    if "log_softmax" not in operation.operator:
        powers = lowering.somehow_stored(powers)
        total = lowering.reduce("sum", powers, [axis], keep=True)
        return pointwise(
            lowering, value.shape, "float32", lambda e, s: apply("div", e, s), powers, total
        )
    total = lowering.reduce("sum", powers, [axis], keep=True)

    def body(x: Term, m: Term, s: Term) -> Term:
        return apply("sub", apply("sub", x, m), apply("log", s))

    return pointwise(lowering, value.shape, "float32", body, value, largest, total)


@lowers("linalg_vector_norm.default")
def _norm(lowering: Lowering, operation: Operation) -> Value:
    value, order = lowering.value(operation.first), float(operation.arguments["ord"])
    axes, keep = axes_of(operation, len(value.shape)), _keep(operation)
    sizes = pointwise(lowering, value.shape, "float32", lambda x: apply("abs", x), value)
    if math.isinf(order):
        return lowering.reduce("max" if order > 0 else "min", sizes, axes, keep=keep)
    if order == 2:
        squares = pointwise(lowering, value.shape, "float32", lambda x: apply("mul", x, x), value)
        total = lowering.reduce("sum", squares, axes, keep=keep)
        return pointwise(lowering, total.shape, "float32", lambda x: apply("sqrt", x), total)
    if order == 1:
        return lowering.reduce("sum", sizes, axes, keep=keep)
    if order <= 0:
        raise lowering.refused(operation, f"has the order {order}", "use a positive order")
    powers = pointwise(
        lowering, value.shape, "float32", lambda x: apply("pow", x, number(order)), sizes
    )
    total = lowering.reduce("sum", powers, axes, keep=keep)
    return pointwise(
        lowering, total.shape, "float32", lambda x: apply("pow", x, number(1 / order)), total
    )


@lowers("cumsum.default")
def _cumsum(lowering: Lowering, operation: Operation) -> Value:
    """Each element as a sum of its own, which suits short axes."""
    dtype = dtype_of(operation)
    value = converted(lowering, lowering.value(operation.first), dtype)
    rank = len(value.shape)
    axis = operation.arguments["dim"] % max(1, rank)
    own, tap = [Axis(at) for at in range(rank)], Axis(rank)
    element = lowering.element(value, (*own[:axis], tap, *own[axis + 1 :]))
    zero: Term = number(0.0) if dtype == "float32" else integer(0)
    body = apply("select", apply("le", tap, own[axis]), element, zero)
    return lowering.window("sum", value.shape, (value.shape[axis],), body, dtype)
