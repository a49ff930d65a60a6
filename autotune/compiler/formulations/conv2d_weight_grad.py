"""Weight gradient of a convolution.

dweight[k,c,r,s] = sum over n,oh,ow of dy[n,k,oh,ow] * x[n,c,oh*sh+r*dh-ph,ow*sw+s*dw-pw].
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.conv2d_forward import (
    Read,
    channel_of,
    guarded,
    padded,
    padded_nhwc,
)
from autotune.compiler.formulations.layouts import compute_filters, reader, rounded_up, zeros_after
from autotune.compiler.formulations.registry import Attributes, Tensors, formulation
from autotune.workloads.operators import Conv2d


def _correlate(conv: Conv2d, x: Read, dy: Any) -> Tensors:
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    gradient, channel = reader(conv, dy), channel_of(conv)
    rn = te.reduce_axis((0, conv.n), "rn")
    ri, rj = te.reduce_axis((0, conv.oh), "ri"), te.reduce_axis((0, conv.ow), "rj")

    def value(o: Any, i: Any, r: Any, s: Any) -> Any:
        taken = x(rn, channel(o, i), ri * sh + r * dh, rj * sw + s * dw)
        return te.sum(gradient(rn, o, ri, rj) * taken, axis=[rn, ri, rj])

    return [compute_filters(conv, value, "dweight")]


@formulation("conv2d", "weight_grad", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    """The definition, with a padded copy; with channels last, a GEMM over (n,oh,ow)."""
    x, dy = inputs
    return _correlate(conv, padded(x, conv), dy)


@formulation(
    "conv2d", "weight_grad", "guarded", applies=lambda conv: conv.channels_last and any(conv.pad)
)
def without_copy(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Tests for the padding instead of copying. With channels last, one test serves all channels."""
    x, dy = inputs
    return _correlate(conv, guarded(x, conv), dy)


@formulation(
    "conv2d",
    "weight_grad",
    "nhwc",
    applies=lambda conv: conv.groups == 1 and not conv.channels_last,
)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Builds the kernel with `nhwc_product`."""
    return nhwc_product(conv, inputs)


def nhwc_product(
    conv: Conv2d, inputs: Tensors, attrs: Attributes = None, vector: int = 1
) -> Tensors:
    """GEMM over (n,oh,ow) with channels-last operands, copied if needed. The output channel is contiguous.

    Args:
        conv: A convolution without groups.
        inputs: x and dy.
        attrs: Marks of the block that multiplies.
        vector: Output channels of zeros are added until they are a multiple of this.
    """
    x, dy = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    xp, dyp = padded_nhwc(x, conv), dy
    wide = rounded_up(conv.k, vector)
    if not conv.channels_last or wide > conv.k:
        last = conv.channels_last
        dyp = zeros_after(
            (conv.n, conv.oh, conv.ow, wide), conv.k,
            lambda b, i, j, o: dy[b, i, j, o] if last else dy[b, o, i, j], "dy_nhwc",
        )  # fmt: skip
    rn = te.reduce_axis((0, conv.n), "rn")
    ri, rj = te.reduce_axis((0, conv.oh), "ri"), te.reduce_axis((0, conv.ow), "rj")
    acc = te.compute(
        (conv.r, conv.s, conv.c, wide),
        lambda r, s, i, o: te.sum(
            xp[rn, ri * sh + r * dh, rj * sw + s * dw, i] * dyp[rn, ri, rj, o], axis=[rn, ri, rj]
        ),
        name="dweight" if conv.channels_last and wide == conv.k else "dweight_rsck",
        attrs=attrs,
    )
    if conv.channels_last and wide == conv.k:
        return [acc]
    if conv.channels_last:
        shape = (conv.r, conv.s, conv.c, conv.k)
        return [te.compute(shape, lambda *at: acc[at], name="dweight")]
    return [
        te.compute(
            (conv.k, conv.c, conv.r, conv.s), lambda o, i, r, s: acc[r, s, i, o], name="dweight"
        )
    ]


@formulation("conv2d", "weight_grad", "split_rows", applies=lambda conv: conv.n * conv.oh > 1)
def split_rows(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Split-K: one partial gradient per output row, then a sum over rows.

    The reduction over (n,oh,ow) is long and the result is small. One partial result per output row gives a parallel
    device enough work (the split-K weight gradients of Ansor and cuDNN do the same).
    """
    x, dy = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    image, gradient, channel = padded(x, conv), reader(conv, dy), channel_of(conv)
    rn, rj = te.reduce_axis((0, conv.n), "rn"), te.reduce_axis((0, conv.ow), "rj")

    def value(row: Any, o: Any, i: Any, r: Any, s: Any) -> Any:
        taken = image(rn, channel(o, i), row * sh + r * dh, rj * sw + s * dw)
        return te.sum(gradient(rn, o, row, rj) * taken, axis=[rn, rj])

    partial = compute_filters(conv, value, "dweight_rows", (conv.oh,))
    row = te.reduce_axis((0, conv.oh), "row")
    return [
        te.compute(
            tuple(int(extent) for extent in partial.shape[1:]),
            lambda *at: te.sum(partial[(row, *at)], axis=row),
            name="dweight",
        )
    ]
