"""Converts each supported ATen operator to a layer of the builder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from autotune.workloads.autodiff import Value
from autotune.workloads.capture.lowering import Layer, Lowering
from autotune.workloads.capture.operations import activation
from autotune.workloads.capture.program import Operation, Reference

Pair = tuple[int, int]

MOST_JOINED = 4  # Number of tensors that one concat takes.


def _conv(lowering: Lowering, operation: Operation) -> Value:
    weight = lowering.parameter(operation, "weight")
    channels, _, *kernel = lowering.program.values[weight].shape
    dilation = _pair(operation.arguments["dilation"])
    pad = operation.arguments["padding"]
    if pad == "valid":
        pad = 0
    elif pad == "same":
        spans = [(size - 1) * gap for size, gap in zip(kernel, dilation, strict=True)]
        if any(span % 2 for span in spans):
            raise lowering.refused(
                operation, "pads more on one side (padding='same')", "use an odd kernel"
            )
        pad = tuple(span // 2 for span in spans)
    return _weighted(
        lowering,
        operation,
        weight,
        lambda place, x, names: lowering.builder.conv(
            place,
            x,
            channels,
            _pair(kernel),
            stride=_pair(operation.arguments["stride"]),
            pad=_pair(pad),
            dilation=dilation,
            groups=_whole(operation.arguments["groups"]),
            **names,
        ),
    )


def _linear(lowering: Lowering, operation: Operation) -> Value:
    weight = lowering.parameter(operation, "weight")
    features = lowering.program.values[weight].shape[0]
    return _weighted(
        lowering,
        operation,
        weight,
        lambda place, x, names: lowering.builder.linear(place, x, features, **names),
    )


def _weighted(
    lowering: Lowering,
    operation: Operation,
    weight: str,
    append: Callable[[str, Value, dict[str, Any]], Value],
) -> Value:
    x = lowering.argument(operation, operation.first)
    has_bias = operation.arguments["bias"] is not None
    relu = has_bias and lowering.activation(operation) == "relu"
    if relu:
        lowering.fuse(operation)
    names = {
        "weight": weight,
        "bias": lowering.parameter(operation, "bias") if has_bias else False,
        "relu": relu,
    }
    own = weight == f"{operation.module}.weight"
    return append(lowering.place(operation, operation.module if own else ""), x, names)


def _batch_norm(lowering: Lowering, operation: Operation) -> Value:
    arguments = operation.arguments
    if not arguments["training"]:
        raise lowering.refused(
            operation,
            "uses its running statistics (evaluation mode)",
            "a step trains with the statistics of the batch; do not override train()",
        )
    for key in ("running_mean", "running_var"):
        source = arguments[key]
        if not (isinstance(source, Reference) and source.name in lowering.program.buffers):
            raise lowering.refused(
                operation, "has no running statistics", "use track_running_stats=True"
            )
    for key in ("weight", "bias"):
        if arguments[key] is None:
            raise lowering.refused(operation, f"has no {key}", "use affine=True")
    names = [lowering.parameter(operation, "weight"), lowering.parameter(operation, "bias")]
    for key in ("running_mean", "running_var"):
        source = arguments[key]
        assert isinstance(source, Reference)
        names.append(lowering.program.buffers[source.name])
    owner = names[0].removesuffix(".weight")
    if names != [f"{owner}.{key}" for key in ("weight", "bias", "running_mean", "running_var")]:
        raise lowering.refused(
            operation, f"mixes tensors of several modules: {', '.join(names)}", "use BatchNorm2d"
        )
    millionths = round(_number(arguments["eps"]) * 1e6)
    if millionths < 1 or not math.isclose(millionths * 1e-6, _number(arguments["eps"])):
        raise lowering.refused(
            operation, f"has eps={arguments['eps']}", "use a multiple of 0.000001"
        )
    x = lowering.argument(operation, operation.first)
    place = lowering.place(operation, owner)
    if place != owner:
        raise lowering.refused(
            operation,
            f"cannot be called {owner} in the step, where that name is taken",
            "use each batch norm once, and give it a name such as norm1",
        )
    followed = lowering.activation(operation)
    if followed:
        lowering.fuse(operation)
    return lowering.builder.batch_norm(
        place,
        x,
        epsilon_millionths=millionths,
        momentum=_number(arguments["momentum"]),
        relu=followed == "relu",
        relu6=followed == "relu6",
    )


def _activation(lowering: Lowering, operation: Operation) -> Value:
    kind = activation(operation)
    if not kind:
        limits = f"({operation.arguments['min_val']}, {operation.arguments['max_val']})"
        raise lowering.refused(operation, f"has the limits {limits}", "only (0, 6) is supported")
    x = lowering.argument(operation, operation.first)
    return lowering.builder.relu(lowering.place(operation), x, six=kind == "relu6")


def _max_pool(lowering: Lowering, operation: Operation) -> Value:
    arguments = operation.arguments
    if _pair(arguments["dilation"]) != (1, 1):
        raise lowering.refused(operation, "is dilated", "use dilation=1")
    x = lowering.argument(operation, operation.first)
    return lowering.builder.max_pool(
        lowering.place(operation),
        x,
        _pair(arguments["kernel_size"]),
        stride=_pair(arguments["stride"] or arguments["kernel_size"]),
        pad=_pair(arguments["padding"]),
        ceil=bool(arguments["ceil_mode"]),
    )


def _avg_pool(lowering: Lowering, operation: Operation) -> Value:
    arguments, pad = operation.arguments, _pair(operation.arguments["padding"])
    if arguments["ceil_mode"]:
        raise lowering.refused(operation, "rounds its size up", "use ceil_mode=False")
    if arguments["divisor_override"] is not None or (
        pad != (0, 0) and not arguments["count_include_pad"]
    ):
        raise lowering.refused(
            operation, "does not divide by the window's size", "use count_include_pad=True"
        )
    x = lowering.argument(operation, operation.first)
    return lowering.builder.avg_pool(
        lowering.place(operation),
        x,
        _pair(arguments["kernel_size"]),
        stride=_pair(arguments["stride"] or arguments["kernel_size"]),
        pad=pad,
    )


def _adaptive_avg_pool(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.argument(operation, operation.first)
    size, wanted = x.shape[2:], operation.shape[2:]
    if len(size) != 2 or any(has % wants for has, wants in zip(size, wanted, strict=True)):
        raise lowering.refused(
            operation, f"takes {size} pixels to {wanted}", "use a size that divides the input's"
        )
    if wanted == (1, 1):
        return lowering.builder.global_avg_pool(lowering.place(operation), x)
    if wanted == size:
        return x
    window = size[0] // wanted[0], size[1] // wanted[1]
    return lowering.builder.avg_pool(lowering.place(operation), x, window, stride=window)


def _mean(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.argument(operation, operation.first)
    axes = operation.arguments["dim"]
    given = {axis % len(x.shape) for axis in axes} if isinstance(axes, tuple) else set()
    if len(x.shape) != 4 or given != {2, 3} or operation.arguments["dtype"] is not None:
        raise lowering.refused(
            operation, f"is over the axes {axes}", "supported: height and width, (2, 3)"
        )
    return lowering.builder.global_avg_pool(lowering.place(operation), x)


def _dropout(lowering: Lowering, operation: Operation) -> Value:
    x = lowering.argument(operation, operation.first)
    return lowering.builder.dropout(lowering.place(operation), x, _number(operation.arguments["p"]))


def _add(lowering: Lowering, operation: Operation) -> Value:
    a = lowering.argument(operation, operation.first)
    b = lowering.argument(operation, operation.arguments["other"])
    if a.shape != b.shape or operation.arguments["alpha"] != 1:
        raise lowering.refused(
            operation,
            f"adds shapes {a.shape} and {b.shape}",
            "only equal shapes can be added, as they are",
        )
    return lowering.builder.add(lowering.place(operation), a, b)


def _cat(lowering: Lowering, operation: Operation) -> Value:
    listed, axis = operation.arguments["tensors"], _whole(operation.arguments["dim"])
    assert isinstance(listed, tuple)
    parts = [lowering.argument(operation, part) for part in listed]
    if axis % len(operation.shape) != 1:
        raise lowering.refused(operation, f"joins along axis {axis}", "channels are axis 1")
    parts = [Value(x.name, (*x.shape, 1, 1)[:4], x.needs_grad) for x in parts]
    while len(parts) > 1:
        joined = lowering.builder.concat(lowering.place(operation), *parts[:MOST_JOINED])
        parts = [joined, *parts[MOST_JOINED:]]
    return parts[0]


def _pair(value: object) -> Pair:
    """Reads a size that PyTorch takes as one number, a list of one, or a list of two."""
    numbers = value if isinstance(value, tuple | list) else (value,)
    return _whole(numbers[0]), _whole(numbers[-1])


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


LAYERS: Mapping[str, Layer] = MappingProxyType(
    {
        "aten.conv2d.default": _conv,
        "aten.conv2d.padding": _conv,
        "aten.linear.default": _linear,
        "aten.batch_norm.default": _batch_norm,
        **{
            f"aten.{name}.default": _activation
            for name in ("relu", "relu_", "relu6", "relu6_", "hardtanh", "hardtanh_")
        },
        "aten.max_pool2d.default": _max_pool,
        "aten.avg_pool2d.default": _avg_pool,
        "aten.adaptive_avg_pool2d.default": _adaptive_avg_pool,
        "aten.mean.dim": _mean,
        "aten.dropout.default": _dropout,
        "aten.dropout_.default": _dropout,
        "aten.add.Tensor": _add,
        "aten.add_.Tensor": _add,
        **{f"aten.{name}.default": _cat for name in ("cat", "concat", "concatenate")},
    }
)
