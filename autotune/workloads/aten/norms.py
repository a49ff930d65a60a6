"""Normalisations, and random numbers of dropout."""

from __future__ import annotations

import math

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import pointwise
from autotune.workloads.aten.program import Operation, Ref
from autotune.workloads.aten.reductions import mean, squared_deviation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.shapes import in_shape
from autotune.workloads.aten.values import Shape, Strided, Value
from autotune.workloads.expressions import Term, apply, number
from autotune.workloads.graph import Initial
from autotune.workloads.operators import BatchNorm, BatchStats


def _by_channel(lowering: Lowering, value: Value, rank: int) -> Value:
    return in_shape(lowering, value, (1, value.shape[0], *[1] * (rank - 2)))


def _inverse(lowering: Lowering, variance: Value, epsilon: float) -> Value:
    def body(v: Term) -> Term:
        return apply("div", number(1.0), apply("sqrt", apply("add", v, number(epsilon))))

    return pointwise(lowering, variance.shape, "float32", body, variance)


def _normalised(
    lowering: Lowering, x: Value, average: Value, inverse: Value, weight: object, bias: object
) -> Value:
    """``(x - mean) * inverse * weight + bias``, everything broadcast to ``x``; weight and bias may be None."""
    operands = [x, average, inverse, *(one for one in (weight, bias) if one is not None)]

    def body(x: Term, m: Term, i: Term, *affine: Term) -> Term:
        given = iter(affine)
        y = apply("mul", apply("sub", x, m), i)
        if weight is not None:
            y = apply("mul", y, next(given))
        return y if bias is None else apply("add", y, next(given))

    return pointwise(lowering, x.shape, "float32", body, *operands)


@lowers("_native_batch_norm_legit_functional.default", "_native_batch_norm_legit.no_stats")
@lowers("_native_batch_norm_legit_no_training.default")
def _batch_norm(lowering: Lowering, operation: Operation) -> tuple[Value | None, ...]:
    arguments = operation.arguments
    x = lowering.value(arguments["input"])
    rank, channels = len(x.shape), x.shape[1]
    weight, bias = (
        None
        if arguments[key] is None
        else _by_channel(lowering, lowering.value(arguments[key]), rank)
        for key in ("weight", "bias")
    )
    epsilon = arguments["eps"]
    running = [
        lowering.value(arguments[key]) if isinstance(arguments.get(key), Ref) else None
        for key in ("running_mean", "running_var")
    ]
    if not arguments.get("training", False):
        average, variance = running
        assert average is not None and variance is not None
        y = _normalised(
            lowering, x, _by_channel(lowering, average, rank),
            _by_channel(lowering, _inverse(lowering, variance, epsilon), rank), weight, bias,
        )  # fmt: skip
        return y, None, None, average, variance
    x = lowering.images(x)
    count = math.prod(x.shape) // channels
    operator = BatchStats(x.shape[0], channels, count // x.shape[0], lowering.channels_last)
    names = lowering.call(operator, "forward", (x,), (channels,), (channels,))
    average, variance = (Strided(name, channels, (channels,), (1,), 0, "float32") for name in names)
    lowering.variances[names[0]] = names[1]
    inverse = lowering.stored(_inverse(lowering, variance, epsilon))
    y = _normalised(
        lowering, x, _by_channel(lowering, average, rank), _by_channel(lowering, inverse, rank),
        weight, bias,
    )  # fmt: skip
    share = arguments["momentum"]
    after: list[Value | None] = [None, None]
    for at, (old, new, factor) in enumerate(
        zip(running, (average, variance), (1.0, count / max(1, count - 1)), strict=True)
    ):
        if old is not None:
            after[at] = pointwise(
                lowering, (channels,), "float32",
                lambda o, n, factor=factor: apply(
                    "add",
                    apply("mul", number(1.0 - share), o),
                    apply("mul", number(share * factor), n),
                ),
                old, new,
            )  # fmt: skip
    return y, average, inverse, *after


@lowers("native_batch_norm_backward.default")
def _batch_norm_backward(lowering: Lowering, operation: Operation) -> tuple[Value | None, ...]:
    arguments = operation.arguments
    x, dy = lowering.value(arguments["input"]), lowering.value(arguments["grad_out"])
    rank, channels = len(x.shape), x.shape[1]
    weight = None if arguments["weight"] is None else lowering.value(arguments["weight"])
    wants_x, *wants_affine = arguments["output_mask"]
    count = math.prod(x.shape) // channels
    training = arguments["train"]
    if training:
        average = lowering.value(arguments["save_mean"])
        inverse = lowering.value(arguments["save_invstd"])
    else:
        average = lowering.value(arguments["running_mean"])
        inverse = _inverse(lowering, lowering.value(arguments["running_var"]), arguments["eps"])
    sums = None
    if training or any(wants_affine):
        sums = _gradient_sums(lowering, operation, x, dy, average, inverse)
        dy = lowering.images(dy)
    dx = None
    if wants_x:
        wide = [_by_channel(lowering, one, rank) for one in (average, inverse)]
        scale = [] if weight is None else [_by_channel(lowering, weight, rank)]
        totals = (
            [] if sums is None or not training else [_by_channel(lowering, s, rank) for s in sums]
        )

        def body(dy: Term, x: Term, m: Term, i: Term, *rest: Term) -> Term:
            given = iter(rest)
            factor = apply("mul", i, next(given)) if scale else i
            if totals:
                dweight, dbias = next(given), next(given)
                hat = apply("mul", apply("sub", x, m), i)
                mean_part = apply("mul", dbias, number(1.0 / count))
                slope = apply("mul", hat, apply("mul", dweight, number(1.0 / count)))
                dy = apply("sub", apply("sub", dy, mean_part), slope)
            return apply("mul", factor, dy)

        dx = pointwise(lowering, x.shape, "float32", body, dy, x, *wide, *scale, *totals)
    dweight, dbias = sums if sums is not None else (None, None)
    return dx, dweight if weight is not None else None, dbias


def _gradient_sums(
    lowering: Lowering, operation: Operation, x: Value, dy: Value, average: Value, inverse: Value
) -> tuple[Value, Value]:
    """The sums of ``dy * (x - mean) * inverse`` and of ``dy`` over each channel."""
    rank, channels = len(x.shape), x.shape[1]
    millionths = round(operation.arguments["eps"] * 1e6)
    exact = millionths >= 1 and math.isclose(millionths * 1e-6, operation.arguments["eps"])
    x, dy = lowering.images(x), lowering.images(dy)
    if exact and isinstance(average, Strided) and average.tensor in lowering.variances:
        pixels = math.prod(x.shape[2:])
        operator = BatchNorm(
            x.shape[0], channels, pixels, millionths, channels_last=lowering.channels_last
        )
        variance = Strided(
            lowering.variances[average.tensor], channels, (channels,), (1,), 0, "float32"
        )
        names = lowering.call(
            operator, "weight_grad", (x, average, variance, dy), (channels,), (channels,)
        )
        first, second = (Strided(name, channels, (channels,), (1,), 0, "float32") for name in names)
        return first, second
    axes = [axis for axis in range(rank) if axis != 1]

    def body(dy: Term, x: Term, m: Term, i: Term) -> Term:
        return apply("mul", dy, apply("mul", apply("sub", x, m), i))

    wide = [_by_channel(lowering, one, rank) for one in (average, inverse)]
    slopes = pointwise(lowering, x.shape, "float32", body, dy, x, *wide)
    return lowering.reduce("sum", slopes, axes), lowering.reduce("sum", dy, axes)


@lowers("native_layer_norm.default")
def _layer_norm(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    arguments = operation.arguments
    x = lowering.somehow_stored(lowering.value(arguments["input"]))
    axes = list(range(len(x.shape) - len(arguments["normalized_shape"]), len(x.shape)))
    weight, bias = (
        None if arguments[key] is None else lowering.value(arguments[key])
        for key in ("weight", "bias")
    )
    average, inverse = _moments(lowering, x, axes, arguments["eps"])
    return _normalised(lowering, x, average, inverse, weight, bias), average, inverse


def _moments(
    lowering: Lowering, x: Value, axes: list[int], epsilon: float
) -> tuple[Strided, Strided]:
    """Mean and inverse deviation over axes, which keep size 1."""
    average = lowering.stored(mean(lowering, x, axes, keep=True))
    variance = mean(lowering, squared_deviation(lowering, x, average), axes, keep=True)
    return average, lowering.stored(_inverse(lowering, variance, epsilon))


@lowers("native_group_norm.default")
def _group_norm(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    arguments = operation.arguments
    x = lowering.value(arguments["input"])
    n, channels, *pixels = x.shape
    groups = arguments["group"]
    apart: Shape = (n, groups, channels // groups, *pixels)
    grouped = in_shape(lowering, lowering.stored(x), apart)
    average, inverse = _moments(lowering, grouped, list(range(2, len(apart))), arguments["eps"])

    def affine(key: str) -> Value | None:
        if arguments[key] is None:
            return None
        value = lowering.value(arguments[key])
        return in_shape(lowering, value, (1, groups, channels // groups, *[1] * len(pixels)))

    y = _normalised(lowering, grouped, average, inverse, affine("weight"), affine("bias"))
    found = in_shape(lowering, y, operation.shape)
    return found, *(in_shape(lowering, one, (n, groups)) for one in (average, inverse))


@lowers("_weight_norm_interface_backward.default")
def _weight_norm_backward(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    """Of ``w = v g / |v|``, where norms are over all axes but one (Salimans and Kingma, NeurIPS 2016)."""
    dw, v, g, norm = (
        lowering.value(operation.arguments[key])
        for key in ("grad_w", "saved_v", "saved_g", "saved_norms")
    )
    rank = len(v.shape)
    kept = operation.arguments["dim"] % rank
    along = pointwise(lowering, v.shape, "float32", lambda a, b: apply("mul", a, b), dw, v)
    total = lowering.reduce("sum", along, [a for a in range(rank) if a != kept], keep=True)

    def of_direction(dw: Term, v: Term, g: Term, n: Term, total: Term) -> Term:
        toward = apply("div", apply("mul", v, total), apply("mul", n, n))
        return apply("mul", apply("div", g, n), apply("sub", dw, toward))

    dg = pointwise(lowering, g.shape, "float32", lambda t, n: apply("div", t, n), total, norm)
    return (
        pointwise(lowering, v.shape, "float32", of_direction, dw, v, g, norm, total),
        dg,
    )


@lowers("native_dropout.default")
def _dropout(lowering: Lowering, operation: Operation) -> tuple[Value, ...]:
    x = lowering.value(operation.arguments["input"])
    probability = operation.arguments["p"]
    mask = lowering.drawn(operation.shape, Initial("mask", probability))
    y = pointwise(lowering, operation.shape, "float32", lambda x, m: apply("mul", x, m), x, mask)
    kept = pointwise(lowering, operation.shape, "bool", lambda m: apply("lt", number(0.0), m), mask)
    return y, kept


@lowers("bernoulli.p")
def _bernoulli(lowering: Lowering, operation: Operation) -> Value:
    """A mask of 1 and 0, made of one of 1 / p and 0: what divides it by p, as dropout does, reads that."""
    kept = operation.arguments["p"]
    mask = lowering.drawn(operation.shape, Initial("mask", 1.0 - kept))
    return pointwise(
        lowering, operation.shape, "float32", lambda m: apply("mul", m, number(kept)), mask
    )


@lowers("randn.default", "randn_like.default")
def _normal(lowering: Lowering, operation: Operation) -> Value:
    return lowering.drawn(operation.shape, Initial("noise", 1.0))
