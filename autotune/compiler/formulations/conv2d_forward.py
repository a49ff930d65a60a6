"""Forward convolution: y[n,k,oh,ow] = sum over c,r,s of x[n,c,oh*sh+r*dh-ph,ow*sw+s*dw-pw] * weight[k,c,r,s]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import (
    compute,
    filter_reader,
    framed,
    from_last,
    reader,
    rounded_up,
    zeros_after,
)
from autotune.compiler.formulations.registry import Attributes, Tensors, formulation
from autotune.workloads.operators import Conv2d

Read = Callable[..., Any]


def guarded(x: Any, conv: Conv2d) -> Read:
    """Reads x[n,c,h+2ph,w+2pw], which is zero outside the image, with a test at each element."""
    if conv.pad == (0, 0):
        return reader(conv, x)
    return framed(conv, x, te.const(0.0, x.dtype))


def padded(x: Any, conv: Conv2d) -> Read:
    """Reads x[n,c,h+2ph,w+2pw] from a zero-padded copy; from x itself if there is no padding."""
    (ph, pw), value = conv.pad, guarded(x, conv)
    if (ph, pw) == (0, 0):
        return value
    shape = (conv.n, conv.c, conv.h + 2 * ph, conv.w + 2 * pw)
    return reader(conv, compute(conv, shape, value, "pad"))


def padded_nhwc(x: Any, conv: Conv2d) -> Any:
    """Zero-pads x and moves its channels last, in one pass: [n,h+2ph,w+2pw,c]; x itself if it has this form."""
    (ph, pw), value = conv.pad, guarded(x, conv)
    if conv.channels_last and not any(conv.pad):
        return x
    return te.compute(
        (conv.n, conv.h + 2 * ph, conv.w + 2 * pw, conv.c),
        lambda b, y, z, i: value(b, i, y, z),
        name="x_nhwc",
    )


def channel_of(conv: Conv2d) -> Callable[[Any, Any], Any]:
    """Returns a map from (output channel, input channel in its group) to the input channel."""
    per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    if conv.groups == 1:
        return lambda o, i: i
    return lambda o, i: o // k_per_group * per_group + i


def _convolve(conv: Conv2d, x: Read, weight: Any) -> Tensors:
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    filters, channel = filter_reader(conv, weight), channel_of(conv)
    rc = te.reduce_axis((0, conv.c // conv.groups), "rc")
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")

    def value(b: Any, o: Any, i: Any, j: Any) -> Any:
        taken = x(b, channel(o, rc), i * sh + rr * dh, j * sw + rs * dw)
        axes = [rr, rs, rc] if conv.channels_last else [rc, rr, rs]
        return te.sum(taken * filters(o, rc, rr, rs), axis=axes)

    return [compute(conv, (conv.n, conv.k, conv.oh, conv.ow), value, "y")]


@formulation("conv2d", "forward", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    """The definition, with a padded copy; with channels last, an implicit GEMM."""
    x, weight = inputs
    return _convolve(conv, padded(x, conv), weight)


@formulation(
    "conv2d", "forward", "guarded", applies=lambda conv: conv.channels_last and any(conv.pad)
)
def without_copy(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Tests for the padding instead of copying. With channels last, one test serves all channels."""
    x, weight = inputs
    return _convolve(conv, guarded(x, conv), weight)


@formulation(
    "conv2d",
    "forward",
    "nhwc",
    applies=lambda conv: conv.groups == 1 and not conv.channels_last,
)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Builds the kernel with `nhwc_product`."""
    return nhwc_product(conv, inputs)


def nhwc_product(
    conv: Conv2d, inputs: Tensors, attrs: Attributes = None, vector: int = 1
) -> Tensors:
    """Implicit GEMM with channels-last operands, which are copied if needed. The output channel is contiguous.

    Args:
        conv: A convolution without groups.
        inputs: x and the weight.
        attrs: Marks of the block that multiplies.
        vector: Output channels of zeros are added until they are a multiple of this.
    """
    x, weight = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    xp, wp = padded_nhwc(x, conv), weight
    wide = rounded_up(conv.k, vector)
    if not conv.channels_last or wide > conv.k:
        read = filter_reader(conv, weight)
        wp = zeros_after(
            (conv.r, conv.s, conv.c, wide),
            conv.k,
            lambda r, s, i, o: read(o, i, r, s),
            "weight_rsck",
        )
    rc = te.reduce_axis((0, conv.c), "rc")
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")
    acc = te.compute(
        (conv.n, conv.oh, conv.ow, wide),
        lambda b, i, j, o: te.sum(
            xp[b, i * sh + rr * dh, j * sw + rs * dw, rc] * wp[rr, rs, rc, o], axis=[rr, rs, rc]
        ),
        name="y" if conv.channels_last and wide == conv.k else "y_nhwc",
        attrs=attrs,
    )
    return [from_last(conv, acc, "y", conv.k)]
