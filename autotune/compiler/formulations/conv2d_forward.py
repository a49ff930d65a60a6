"""Forward convolution: y[n,k,oh,ow] = sum over c,r,s of x[n,c,oh*sh+r*dh-ph,ow*sw+s*dw-pw] * weight[k,c,r,s]."""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Conv2d


def padded(x: Any, conv: Conv2d) -> Any:
    """Zero-pads x[n,c,h,w] by the convolution's padding; x itself where there is none."""
    ph, pw = conv.pad
    if ph == 0 and pw == 0:
        return x
    n, c = x.shape[0], x.shape[1]
    return te.compute(
        (n, c, conv.h + 2 * ph, conv.w + 2 * pw),
        lambda b, i, y, z: te.if_then_else(
            te.all(y >= ph, y < conv.h + ph, z >= pw, z < conv.w + pw),
            x[b, i, y - ph, z - pw],
            te.const(0.0, x.dtype),
        ),
        name="pad",
    )


def padded_nhwc(x: Any, conv: Conv2d) -> Any:
    """Zero-pads x[n,c,h,w] and moves its channels last, in one pass: [n,h+2ph,w+2pw,c]."""
    ph, pw = conv.pad
    return te.compute(
        (conv.n, conv.h + 2 * ph, conv.w + 2 * pw, conv.c),
        lambda b, y, z, i: te.if_then_else(
            te.all(y >= ph, y < conv.h + ph, z >= pw, z < conv.w + pw),
            x[b, i, y - ph, z - pw],
            te.const(0.0, x.dtype),
        ),
        name="x_nhwc",
    )


@formulation("conv2d", "forward", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    x, weight = inputs
    xp = padded(x, conv)
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    rc = te.reduce_axis((0, per_group), "rc")
    rr = te.reduce_axis((0, conv.r), "rr")
    rs = te.reduce_axis((0, conv.s), "rs")

    def channel(o: Any) -> Any:
        return rc if conv.groups == 1 else o // k_per_group * per_group + rc

    y = te.compute(
        (conv.n, conv.k, conv.oh, conv.ow),
        lambda b, o, i, j: te.sum(
            xp[b, channel(o), i * sh + rr * dh, j * sw + rs * dw] * weight[o, rc, rr, rs],
            axis=[rc, rr, rs],
        ),
        name="y",
    )
    return [y]


@formulation("conv2d", "forward", "nhwc", applies=lambda conv: conv.groups == 1)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Implicit GEMM over channels-last packed operands: the output channel is the contiguous axis."""
    x, weight = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    xp = padded_nhwc(x, conv)
    wp = te.compute(
        (conv.r, conv.s, conv.c, conv.k), lambda r, s, i, o: weight[o, i, r, s], name="weight_rsck"
    )
    rc = te.reduce_axis((0, conv.c), "rc")
    rr = te.reduce_axis((0, conv.r), "rr")
    rs = te.reduce_axis((0, conv.s), "rs")
    acc = te.compute(
        (conv.n, conv.oh, conv.ow, conv.k),
        lambda b, i, j, o: te.sum(
            xp[b, i * sh + rr * dh, j * sw + rs * dw, rc] * wp[rr, rs, rc, o], axis=[rr, rs, rc]
        ),
        name="y_nhwc",
    )
    y = te.compute((conv.n, conv.k, conv.oh, conv.ow), lambda b, o, i, j: acc[b, i, j, o], name="y")
    return [y]
