"""Dense convolutions and matmuls as products for the rule `register_product` to schedule on a CPU.

The last axis of the product is contiguous in its result and in one operand; a convolution is that with channels
last, and copies operands and results that are not. Zeros around an image are a copy too, so that no vector asks
where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from autotune.compiler.formulations.conv2d_data_grad import framed_nhwc
from autotune.compiler.formulations.conv2d_forward import padded_nhwc
from autotune.compiler.formulations.layouts import filter_reader, reader
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.compiler.register_tiles import REGISTER_PRODUCT
from autotune.workloads.operators import Conv2d, Matmul

RULE = "register_product"
_VECTOR = 8


def _vectors(mm: Matmul) -> bool:
    return mm.k % _VECTOR == 0


def _product(
    shape: Sequence[int], depth: Sequence[int], value: Callable[..., Any], name: str
) -> Any:
    """The sum of value(*place, *step) over steps of the given depths, at each place."""
    axes = [te.reduce_axis((0, extent), f"r{number}") for number, extent in enumerate(depth)]
    return te.compute(
        tuple(shape),
        lambda *at: te.sum(value(*at, *axes), axis=axes),
        name=name,
        attrs={REGISTER_PRODUCT: 1},
    )


@formulation("matmul", "data_grad", RULE, rule=RULE, applies=_vectors)
def matmul_data_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    """dx[m, k] = dy[m, n] x weight[n, k]."""
    dy, weight = inputs
    return [_product((mm.m, mm.k), (mm.n,), lambda i, j, r: dy[i, r] * weight[r, j], "dx")]


@formulation("matmul", "weight_grad", RULE, rule=RULE, applies=_vectors)
def matmul_weight_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    """dweight[n, k] = dy[m, n] x x[m, k], over m."""
    x, dy = inputs
    return [_product((mm.n, mm.k), (mm.m,), lambda i, j, r: dy[r, i] * x[r, j], "dweight")]


def _makes_vectors(channels: str, *, strided: bool = True) -> Callable[[Conv2d], bool]:
    """Whether a convolution is dense, and the channels that its result has are whole vectors."""

    def applies(conv: Conv2d) -> bool:
        whole = getattr(conv, channels) % _VECTOR == 0
        return conv.groups == 1 and whole and (strided or conv.stride == (1, 1))

    return applies


def _image(conv: Conv2d, acc: Any, name: str) -> Tensors:
    """An image [n, h, w, channels] in the operator's layout."""
    if conv.channels_last:
        return [acc]
    n, h, w, channels = acc.shape
    return [te.compute((n, channels, h, w), lambda b, i, y, z: acc[b, y, z, i], name=name)]


def _last(conv: Conv2d, x: Any, channels: int, size: tuple[int, int], name: str) -> Any:
    """An image [n, h, w, channels], a copy where it is not stored so."""
    if conv.channels_last:
        return x
    read = reader(conv, x)
    return te.compute((conv.n, *size, channels), lambda b, y, z, i: read(b, i, y, z), name=name)


@formulation("conv2d", "forward", RULE, rule=RULE, applies=_makes_vectors("k"))
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[n, i, j, k] = x[n, i*sh+r*dh, j*sw+s*dw, c] x weight[r, s, c, k]."""
    x, weight = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    whole = not any(conv.pad)
    image = _last(conv, x, conv.c, (conv.h, conv.w), "x_nhwc") if whole else padded_nhwc(x, conv)
    read = filter_reader(conv, weight)
    filters = weight
    if not conv.channels_last:
        shape = (conv.r, conv.s, conv.c, conv.k)
        filters = te.compute(shape, lambda r, s, i, o: read(o, i, r, s), name="weight_rsck")
    acc = _product(
        (conv.n, conv.oh, conv.ow, conv.k),
        (conv.r, conv.s, conv.c),
        lambda b, y, z, o, r, s, i: (
            image[b, y * sh + r * dh, z * sw + s * dw, i] * filters[r, s, i, o]
        ),
        "y" if conv.channels_last else "y_nhwc",
    )
    return _image(conv, acc, "y")


@formulation("conv2d", "data_grad", RULE, rule=RULE, applies=_makes_vectors("c", strided=False))
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx[n, y, z, c] = dy[n, y+ph-r*dh, z+pw-s*dw, k] x weight[r, s, k, c], at stride 1."""
    dy, weight = inputs
    (ph, pw), (dh, dw) = conv.pad, conv.dilation
    gradient, (top, left) = framed_nhwc(conv, dy)
    read = filter_reader(conv, weight)
    shape = (conv.r, conv.s, conv.k, conv.c)
    filters = te.compute(shape, lambda r, s, o, i: read(o, i, r, s), name="weight_rskc")
    acc = _product(
        (conv.n, conv.h, conv.w, conv.c),
        (conv.r, conv.s, conv.k),
        lambda b, y, z, i, r, s, o: (
            gradient[b, y + ph + top - r * dh, z + pw + left - s * dw, o] * filters[r, s, o, i]
        ),
        "dx" if conv.channels_last else "dx_nhwc",
    )
    return _image(conv, acc, "dx")


@formulation("conv2d", "weight_grad", RULE, rule=RULE, applies=_makes_vectors("k"))
def weight_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dweight[r, s, c, k] = x[n, i*sh+r*dh, j*sw+s*dw, c] x dy[n, i, j, k], over all pixels."""
    x, dy = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    whole = not any(conv.pad)
    image = _last(conv, x, conv.c, (conv.h, conv.w), "x_nhwc") if whole else padded_nhwc(x, conv)
    gradient = _last(conv, dy, conv.k, (conv.oh, conv.ow), "dy_nhwc")
    acc = _product(
        (conv.r, conv.s, conv.c, conv.k),
        (conv.n, conv.oh, conv.ow),
        lambda r, s, i, o, b, y, z: (
            image[b, y * sh + r * dh, z * sw + s * dw, i] * gradient[b, y, z, o]
        ),
        "dweight" if conv.channels_last else "dweight_rsck",
    )
    if conv.channels_last:
        return [acc]
    shape = (conv.k, conv.c, conv.r, conv.s)
    return [te.compute(shape, lambda o, i, r, s: acc[r, s, i, o], name="dweight")]
