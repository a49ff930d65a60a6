"""Products of matrices and convolutions, with their gradients: the kernels that are tuned most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import pointwise
from autotune.workloads.aten.program import Operation
from autotune.workloads.aten.reductions import column_sum
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.shapes import in_shape
from autotune.workloads.aten.storage import filter_order
from autotune.workloads.aten.values import Shape, Strided, Value, contiguous, is_stored, permuted
from autotune.workloads.channels_last import as_gemm
from autotune.workloads.expressions import Term, apply, number
from autotune.workloads.operators import Bmm, Conv2d, Matmul, Role

Pair = tuple[int, int]


def product(lowering: Lowering, a: Value, b: Value) -> Strided:
    """A matrix product, or a batch of them: [..., m, k] times [..., k, n].

    The role follows from how the operands are stored: rows or columns in memory. What is neither is stored anew.
    """
    *batch, m, k = a.shape
    n = b.shape[-1]
    a, a_by_columns = _matrix(lowering, a)
    b, b_by_columns = _matrix(lowering, b)
    if a_by_columns and b_by_columns:
        turned = product(lowering, _turned(b), _turned(a))
        return _turned(turned)
    role: Role
    if a_by_columns:
        role, sizes, operands = "weight_grad", (k, m, n), (b, a)
    elif b_by_columns:
        role, sizes, operands = "forward", (m, n, k), (a, b)
    else:
        role, sizes, operands = "data_grad", (m, k, n), (a, b)
    operator = Bmm(batch[0], *sizes) if batch else Matmul(*sizes)
    shape = (*batch, m, n)
    (name,) = lowering.call(operator, role, operands, shape)
    return whole(name, shape)


def whole(name: str, shape: Shape, order: Sequence[int] | None = None) -> Strided:
    """A new tensor of floats as a value: its shape, and the order in which its axes are stored."""
    size = 1
    for n in shape:
        size *= n
    return Strided(name, size, shape, contiguous(shape, order), 0, "float32")


def _matrix(lowering: Lowering, value: Value) -> tuple[Strided, bool]:
    """A matrix in memory, and whether it is there column by column."""
    rank = len(value.shape)
    columns = (*range(rank - 2), rank - 1, rank - 2)
    value = lowering.somehow_stored(value)
    if not is_stored(value) and is_stored(value, columns):
        return value, True
    return lowering.stored(value), False


def _turned(value: Strided) -> Strided:
    rank = len(value.shape)
    turned = permuted(value, (*range(rank - 2), rank - 1, rank - 2))
    assert isinstance(turned, Strided)
    return turned


@lowers("mm.default", "bmm.default")
def _mm(lowering: Lowering, operation: Operation) -> Value:
    a, b = operation.arguments["self"], operation.arguments["mat2"]
    return product(lowering, lowering.value(a), lowering.value(b))


@lowers("addmm.default", "baddbmm.default")
def _addmm(lowering: Lowering, operation: Operation) -> Value:
    arguments = list(operation.arguments.values())
    offset, a, b = (lowering.value(one) for one in arguments[:3])
    beta, alpha = operation.arguments["beta"], operation.arguments["alpha"]
    result = product(lowering, a, b)

    def body(y: Term, c: Term) -> Term:
        if alpha != 1:
            y = apply("mul", y, number(float(alpha)))
        if beta != 1:
            c = apply("mul", c, number(float(beta)))
        return apply("add", y, c)

    return pointwise(lowering, operation.shape, "float32", body, result, offset)


@lowers("convolution.default")
def _convolution(lowering: Lowering, operation: Operation) -> Value:
    arguments = operation.arguments
    _check_axes(lowering, operation)
    x, weight = (_flat(lowering, arguments[key]) for key in ("input", "weight"))
    shape = _with_rows(operation.shape)
    if arguments["transposed"]:
        conv = _conv(lowering, operation, shape, x.shape, weight.shape)
        y = _images(lowering, conv, "data_grad", x, weight, shape)
    else:
        conv = _conv(lowering, operation, x.shape, shape, weight.shape)
        y = _images(lowering, conv, "forward", x, weight, shape)
    result = in_shape(lowering, y, operation.shape)
    if arguments["bias"] is None:
        return result
    bias = lowering.value(arguments["bias"])
    wide = in_shape(lowering, bias, (bias.shape[0], *[1] * (len(operation.shape) - 2)))
    return pointwise(
        lowering, operation.shape, "float32", lambda y, c: apply("add", y, c), result, wide
    )


@lowers("convolution_backward.default")
def _convolution_backward(lowering: Lowering, operation: Operation) -> tuple[Value | None, ...]:
    arguments = operation.arguments
    dy, x, weight = (_flat(lowering, arguments[k]) for k in ("grad_output", "input", "weight"))
    wants_x, wants_weight, wants_bias = arguments["output_mask"]
    dx = dweight = dbias = None
    if arguments["transposed"]:
        conv = _conv(lowering, operation, dy.shape, x.shape, weight.shape)
        if wants_x:
            dx = _images(lowering, conv, "forward", dy, weight, x.shape)
        if wants_weight:
            dweight = _weight_grad(lowering, conv, dy, x, weight.shape)
    else:
        conv = _conv(lowering, operation, x.shape, dy.shape, weight.shape)
        if wants_x:
            dx = _images(lowering, conv, "data_grad", dy, weight, x.shape)
        if wants_weight:
            dweight = _weight_grad(lowering, conv, x, dy, weight.shape)
    if wants_bias:
        images = lowering.images(dy)
        dbias = column_sum(lowering, images, 1) or lowering.reduce(
            "sum", images, [0, 2, 3], keep=False
        )
    return (
        None if dx is None else in_shape(lowering, dx, operation.shapes[0]),
        None if dweight is None else in_shape(lowering, dweight, operation.shapes[1]),
        dbias,
    )


def _check_axes(lowering: Lowering, operation: Operation) -> None:
    if len(operation.arguments["stride"]) > 2:
        raise lowering.refused(operation, "has three axes of pixels", "one or two are supported")


def _with_rows(shape: Shape) -> Shape:
    return shape if len(shape) == 4 else (*shape[:2], 1, shape[2])


def _flat(lowering: Lowering, argument: Any) -> Value:
    """An operand of a convolution with two axes of pixels; one has height 1."""
    value = lowering.value(argument)
    return in_shape(lowering, value, _with_rows(value.shape))


def _conv(lowering: Lowering, operation: Operation, x: Shape, y: Shape, weight: Shape) -> Conv2d:
    arguments = operation.arguments

    def pair(key: str, alone: int) -> Pair:
        given = arguments[key]
        return (given[0], given[1]) if len(given) == 2 else (alone, given[0])

    conv = Conv2d(
        x[0], x[1], x[2], x[3], weight[0], weight[2], weight[3], pair("stride", 1),
        pair("padding", 0), pair("dilation", 1), arguments["groups"], lowering.channels_last,
    )  # fmt: skip
    assert (conv.n, conv.k, conv.oh, conv.ow) == y
    return as_gemm(conv) if lowering.channels_last else conv


def _images(
    lowering: Lowering, conv: Conv2d, role: Role, images: Value, weight: Value, shape: Shape
) -> Strided:
    """A forward pass or data gradient: images and filters to images."""
    operands = (lowering.images(images), lowering.filters(weight))
    return _called(lowering, conv, role, operands, shape, lowering.image_order())


def _weight_grad(lowering: Lowering, conv: Conv2d, x: Value, dy: Value, shape: Shape) -> Strided:
    order = filter_order(4) if lowering.channels_last else (0, 1, 2, 3)
    operands = (lowering.images(x), lowering.images(dy))
    return _called(lowering, conv, "weight_grad", operands, shape, order)


def _called(
    lowering: Lowering,
    conv: Conv2d,
    role: Role,
    operands: Sequence[Strided],
    shape: Shape,
    order: tuple[int, ...],
) -> Strided:
    """Runs a convolution's kernel, whose result is stored in an order of its axes."""
    (name,) = lowering.call(conv, role, operands, tuple(shape[axis] for axis in order))
    return whole(name, shape, order)


@lowers("_trilinear.default")
def _trilinear(lowering: Lowering, operation: Operation) -> Value:
    """A product of three tensors, each with axes of size 1 added, summed over some axes."""
    arguments = operation.arguments
    operands = []
    rank = 0
    for number_ in (1, 2, 3):
        value, added = lowering.value(arguments[f"i{number_}"]), arguments[f"expand{number_}"]
        rank = len(value.shape) + len(added)
        sizes = iter(value.shape)
        shape = tuple(1 if axis in added else next(sizes) for axis in range(rank))
        operands.append(in_shape(lowering, value, shape))
    whole_shape = tuple(max(one.shape[axis] for one in operands) for axis in range(rank))
    products = pointwise(
        lowering, whole_shape, "float32",
        lambda a, b, c: apply("mul", apply("mul", a, b), c), *operands,
    )  # fmt: skip
    return lowering.reduce("sum", products, list(arguments["sumdim"]))
