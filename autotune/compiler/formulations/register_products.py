"""Dense convolutions and matmuls as products, for the rule `register_product` on a CPU.

The last axis of the product is contiguous in its result and in one operand. A convolution has this form with
channels last; operands and results in another layout are copied. Zeros around an image are also added by a copy, so
that vector code needs no bounds tests. Products whose columns fill no vectors, such as those of 65 tokens, get
columns of zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from autotune.compiler.formulations import (
    conv2d_data_grad,
    conv2d_forward,
    conv2d_weight_grad,
    matmul,
)
from autotune.compiler.formulations.registry import (
    ALL_COLUMNS,
    ANY_COLUMNS,
    APART,
    REGISTER_PRODUCT,
    Tensors,
    formulation,
)
from autotune.workloads.operators import Bmm, Conv2d, Matmul

RULE = "register_product"
_MARK = {REGISTER_PRODUCT: ANY_COLUMNS}
_APART = {REGISTER_PRODUCT: APART}
_MOST_WASTED = 2.0
_FEWEST_ROWS = 8
_FEWEST_COLUMNS = 5
"""Fewest columns, so that less than half of a vector is zeros."""
_FEWEST_PADDED_ROWS = 4
_PADDED = "padded_product"
_Read = Callable[..., Any]
_VECTOR = 8


def _vectors(mm: Matmul | Bmm) -> bool:
    return mm.k % _VECTOR == 0


def _vectors_of_results(mm: Matmul | Bmm) -> bool:
    """Returns whether the columns of the forward pass fill vectors, in enough rows to pay for a transposition."""
    return mm.n % _VECTOR == 0 and mm.m >= _FEWEST_ROWS


@formulation("matmul", "forward", RULE, rule=RULE, applies=_vectors)
def matmul_forward(mm: Matmul, inputs: Tensors) -> Tensors:
    """See `matmul.forward_lanes`. The columns of the product are the lanes of each result's partial sums."""
    return matmul.forward_lanes(mm, inputs, {REGISTER_PRODUCT: ALL_COLUMNS})


@formulation("bmm", "data_grad", RULE, rule=RULE, applies=_vectors)
@formulation("matmul", "data_grad", RULE, rule=RULE, applies=_vectors)
def matmul_data_grad(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    """See `matmul.data_grad`."""
    return matmul.data_grad(op, inputs, _MARK)


@formulation("bmm", "weight_grad", RULE, rule=RULE, applies=_vectors)
@formulation("matmul", "weight_grad", RULE, rule=RULE, applies=_vectors)
def matmul_weight_grad(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    """See `matmul.weight_grad`."""
    return matmul.weight_grad(op, inputs, _MARK)


@formulation("bmm", "forward", "packed_product", rule=RULE, applies=_vectors_of_results)
@formulation("matmul", "forward", "packed_product", rule=RULE, applies=_vectors_of_results)
def matmul_forward_packed(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    """See `matmul.forward_packed`."""
    return matmul.forward_packed(op, inputs, _MARK)


def _makes_vectors(channels: str, *, strided: bool = True) -> Callable[[Conv2d], bool]:
    """Returns a test: whether a convolution is dense, and the channels of its result are whole vectors."""

    def applies(conv: Conv2d) -> bool:
        whole = getattr(conv, channels) % _VECTOR == 0
        return conv.groups == 1 and whole and (strided or conv.stride == (1, 1))

    return applies


@formulation("conv2d", "forward", RULE, rule=RULE, applies=_makes_vectors("k"))
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_forward.nhwc_product`."""
    return conv2d_forward.nhwc_product(conv, inputs, _MARK)


@formulation("conv2d", "data_grad", RULE, rule=RULE, applies=_makes_vectors("c", strided=False))
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_data_grad.nhwc_product`."""
    return conv2d_data_grad.nhwc_product(conv, inputs, _MARK)


def _by_phases(conv: Conv2d) -> bool:
    strided = conv.channels_last and conv.stride != (1, 1) and conv.dilation == (1, 1)
    return strided and _makes_vectors("c")(conv) and conv2d_data_grad.wasted(conv) <= _MOST_WASTED


@formulation("conv2d", "data_grad", "phase_product", rule=RULE, applies=_by_phases)
def data_grad_by_phases(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_data_grad.phase_product`."""
    return conv2d_data_grad.phase_product(conv, inputs, _APART)


def _by_columns(conv: Conv2d) -> bool:
    strided = conv.channels_last and conv.stride != (1, 1) and _makes_vectors("c")(conv)
    return strided and (conv.dilation != (1, 1) or conv2d_data_grad.wasted(conv) > 1.0)


@formulation("conv2d", "data_grad", "col2im_product", rule=RULE, applies=_by_columns)
def data_grad_by_columns(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_data_grad.col2im_product`."""
    return conv2d_data_grad.col2im_product(conv, inputs, _APART)


def _by_pixels(conv: Conv2d) -> bool:
    pixels = conv.n * conv.h * conv.w
    plain = conv.channels_last and conv.groups == 1 and conv.stride == (1, 1)
    return plain and _FEWEST_COLUMNS <= pixels <= conv.c // 2


@formulation("conv2d", "data_grad", "pixel_product", rule=RULE, applies=_by_pixels)
def data_grad_by_pixels(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_data_grad.pixel_product`."""
    return conv2d_data_grad.pixel_product(conv, inputs, 2 * _VECTOR, _APART)


@formulation("conv2d", "weight_grad", RULE, rule=RULE, applies=_makes_vectors("k"))
def weight_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_weight_grad.nhwc_product`."""
    return conv2d_weight_grad.nhwc_product(conv, inputs, _MARK)


def _lacks_vectors(channels: str, *, strided: bool = True) -> Callable[[Conv2d], bool]:
    """Returns a test: whether a convolution is dense, and zeros make the channels of its result whole vectors."""

    def applies(conv: Conv2d) -> bool:
        count = getattr(conv, channels)
        padded = count % _VECTOR != 0 and count >= _FEWEST_COLUMNS
        return conv.groups == 1 and padded and (strided or conv.stride == (1, 1))

    return applies


@formulation("conv2d", "forward", _PADDED, rule=RULE, applies=_lacks_vectors("k"))
def forward_padded(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_forward.nhwc_product`."""
    return conv2d_forward.nhwc_product(conv, inputs, _APART, _VECTOR)


@formulation("conv2d", "data_grad", _PADDED, rule=RULE, applies=_lacks_vectors("c", strided=False))
def data_grad_padded(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_data_grad.nhwc_product`."""
    return conv2d_data_grad.nhwc_product(conv, inputs, _APART, _VECTOR)


@formulation("conv2d", "weight_grad", _PADDED, rule=RULE, applies=_lacks_vectors("k"))
def weight_grad_padded(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `conv2d_weight_grad.nhwc_product`."""
    return conv2d_weight_grad.nhwc_product(conv, inputs, _APART, _VECTOR)


def _pads(columns: str, rows: str) -> Callable[[Any], bool]:
    def applies(op: Any) -> bool:
        wide, high = getattr(op, columns), getattr(op, rows)
        return bool(wide % _VECTOR and wide >= _FEWEST_COLUMNS and high >= _FEWEST_PADDED_ROWS)

    return applies


def _product(
    shape: tuple[int, ...], depth: int, left: _Read, right: _Read, name: str, dtype: str
) -> Tensors:
    """Returns the product of two matrices, or of as many as the first axes of the shape.

    Args:
        shape: Shape of the result. The last axes are rows and columns.
        depth: Steps of the reduction.
        left: Reads the first operand at [..., row, step].
        right: Reads the second operand at [..., step, column].
        name: Name of the result.
        dtype: Element type.
    """
    step = te.reduce_axis((0, depth), "step")
    sums = matmul.padded_sums(shape, (step,), left, right, _VECTOR, dtype, _APART)
    return [te.compute(shape, lambda *at: sums[at], name=name)]


def _plain(tensor: Any) -> _Read:
    return lambda *at: tensor[at]


@formulation("bmm", "forward", _PADDED, rule=RULE, applies=_pads("n", "m"))
@formulation("matmul", "forward", _PADDED, rule=RULE, applies=_pads("n", "m"))
def matmul_forward_padded(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    x, weight = inputs
    shape = (*matmul.batch(op), op.m, op.n)
    return _product(shape, op.k, _plain(x), matmul.turned(weight), "y", x.dtype)


@formulation("bmm", "data_grad", _PADDED, rule=RULE, applies=_pads("k", "m"))
@formulation("matmul", "data_grad", _PADDED, rule=RULE, applies=_pads("k", "m"))
def matmul_data_grad_padded(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    dy, weight = inputs
    shape = (*matmul.batch(op), op.m, op.k)
    return _product(shape, op.n, _plain(dy), _plain(weight), "dx", dy.dtype)


@formulation("bmm", "weight_grad", _PADDED, rule=RULE, applies=_pads("k", "n"))
@formulation("matmul", "weight_grad", _PADDED, rule=RULE, applies=_pads("k", "n"))
def matmul_weight_grad_padded(op: Matmul | Bmm, inputs: Tensors) -> Tensors:
    x, dy = inputs
    shape = (*matmul.batch(op), op.n, op.k)
    return _product(shape, op.m, matmul.turned(dy), _plain(x), "dweight", dy.dtype)
