"""Data gradient of a convolution, without inserting zeros between the gradient's elements.

dx[n,c,h,w] = sum over k,r,s of dy[n,k,(h+ph-r*dh)/sh,(w+pw-s*dw)/sw] * weight[k,c,r,s], over the taps where the
divisions leave no remainder and the index lies inside dy.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Conv2d


def _split_phases(conv: Conv2d) -> bool:
    """Whether stride exceeds 1 with taps that lie next to each other, so taps split by phase."""
    return conv.stride != (1, 1) and conv.dilation == (1, 1)


def _gathered(conv: Conv2d, dy: Any, low: tuple[int, int], size: tuple[int, int]) -> Any:
    """dy with zeros around it: element [i, j] of the result is dy[i - low, j - low] where that exists."""
    if low == (0, 0) and size == (conv.oh, conv.ow):
        return dy
    return te.compute(
        (conv.n, conv.k, *size),
        lambda b, o, i, j: te.if_then_else(
            te.all(i >= low[0], i < conv.oh + low[0], j >= low[1], j < conv.ow + low[1]),
            dy[b, o, i - low[0], j - low[1]],
            te.const(0.0, dy.dtype),
        ),
        name="dy_pad",
    )


def _reach(conv: Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Zeros needed before dy, and the size of dy with zeros on both sides, per spatial axis."""
    low, size = [], []
    for extent, out, taps, stride, pad, dilation in (
        (conv.h, conv.oh, conv.r, conv.stride[0], conv.pad[0], conv.dilation[0]),
        (conv.w, conv.ow, conv.s, conv.stride[1], conv.pad[1], conv.dilation[1]),
    ):
        if stride == 1:
            first, last = pad - (taps - 1) * dilation, extent - 1 + pad
        else:
            first, last = (
                pad // stride - (taps + stride - 1) // stride + 1,
                (extent - 1 + pad) // stride,
            )
        before = max(0, -first)
        low.append(before)
        size.append(max(out, last + 1) + before)
    return (low[0], low[1]), (size[0], size[1])


@formulation("conv2d", "data_grad", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Gathers by phase where the stride exceeds 1, by guarded taps where dilation does too."""
    dy, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    c_per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    rk = te.reduce_axis((0, k_per_group), "rk")

    def filters(i: Any) -> Any:
        return rk if conv.groups == 1 else i // c_per_group * k_per_group + rk

    def within(i: Any) -> Any:
        return i if conv.groups == 1 else i % c_per_group

    shape = (conv.n, conv.c, conv.h, conv.w)
    if conv.stride == (1, 1):
        low, size = _reach(conv)
        dyp = _gathered(conv, dy, low, size)
        rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")
        return [
            te.compute(
                shape,
                lambda b, i, y, z: te.sum(
                    dyp[b, filters(i), y + ph + low[0] - rr * dh, z + pw + low[1] - rs * dw]
                    * weight[filters(i), within(i), rr, rs],
                    axis=[rk, rr, rs],
                ),
                name="dx",
            )
        ]
    if _split_phases(conv):
        low, size = _reach(conv)
        dyp = _gathered(conv, dy, low, size)
        th, tw = -(-conv.r // sh), -(-conv.s // sw)
        wp = weight
        if (th * sh, tw * sw) != (conv.r, conv.s):
            wp = te.compute(
                (conv.k, c_per_group, th * sh, tw * sw),
                lambda o, i, r, s: te.if_then_else(
                    te.all(r < conv.r, s < conv.s), weight[o, i, r, s], te.const(0.0, dy.dtype)
                ),
                name="weight_pad",
            )
        rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")
        return [
            te.compute(
                shape,
                lambda b, i, y, z: te.sum(
                    dyp[b, filters(i), (y + ph) // sh + low[0] - rr, (z + pw) // sw + low[1] - rs]
                    * wp[filters(i), within(i), (y + ph) % sh + rr * sh, (z + pw) % sw + rs * sw],
                    axis=[rk, rr, rs],
                ),
                name="dx",
            )
        ]
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")

    def guarded(b: Any, i: Any, y: Any, z: Any) -> Any:
        top, left = y + ph - rr * dh, z + pw - rs * dw
        inside = te.all(
            top >= 0,
            top < conv.oh * sh,
            top % sh == 0,
            left >= 0,
            left < conv.ow * sw,
            left % sw == 0,
        )
        value = dy[b, filters(i), top // sh, left // sw] * weight[filters(i), within(i), rr, rs]
        return te.if_then_else(inside, value, te.const(0.0, dy.dtype))

    return [
        te.compute(
            shape,
            lambda b, i, y, z: te.sum(guarded(b, i, y, z), axis=[rk, rr, rs]),
            name="dx",
        )
    ]


@formulation(
    "conv2d",
    "data_grad",
    "nhwc",
    applies=lambda conv: conv.groups == 1 and conv.stride == (1, 1),
)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Implicit GEMM over channels-last packed operands: the input channel is the contiguous axis."""
    dy, weight = inputs
    (ph, pw), (dh, dw) = conv.pad, conv.dilation
    low, size = _reach(conv)
    dyp = te.compute(
        (conv.n, *size, conv.k),
        lambda b, i, j, o: te.if_then_else(
            te.all(i >= low[0], i < conv.oh + low[0], j >= low[1], j < conv.ow + low[1]),
            dy[b, o, i - low[0], j - low[1]],
            te.const(0.0, dy.dtype),
        ),
        name="dy_nhwc",
    )
    wp = te.compute(
        (conv.r, conv.s, conv.k, conv.c), lambda r, s, o, i: weight[o, i, r, s], name="weight_rskc"
    )
    rk = te.reduce_axis((0, conv.k), "rk")
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")
    acc = te.compute(
        (conv.n, conv.h, conv.w, conv.c),
        lambda b, y, z, i: te.sum(
            dyp[b, y + ph + low[0] - rr * dh, z + pw + low[1] - rs * dw, rk] * wp[rr, rs, rk, i],
            axis=[rr, rs, rk],
        ),
        name="dx_nhwc",
    )
    return [
        te.compute((conv.n, conv.c, conv.h, conv.w), lambda b, i, y, z: acc[b, y, z, i], name="dx")
    ]
