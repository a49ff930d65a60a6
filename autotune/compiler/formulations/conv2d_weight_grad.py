"""Weight gradient of a convolution.

dweight[k,c,r,s] = sum over n,oh,ow of dy[n,k,oh,ow] * x[n,c,oh*sh+r*dh-ph,ow*sw+s*dw-pw].
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.conv2d_forward import padded, padded_nhwc
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Conv2d


@formulation("conv2d", "weight_grad", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    x, dy = inputs
    xp = padded(x, conv)
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    rn = te.reduce_axis((0, conv.n), "rn")
    ri, rj = te.reduce_axis((0, conv.oh), "ri"), te.reduce_axis((0, conv.ow), "rj")

    def channel(o: Any, i: Any) -> Any:
        return i if conv.groups == 1 else o // k_per_group * per_group + i

    return [
        te.compute(
            (conv.k, per_group, conv.r, conv.s),
            lambda o, i, r, s: te.sum(
                dy[rn, o, ri, rj] * xp[rn, channel(o, i), ri * sh + r * dh, rj * sw + s * dw],
                axis=[rn, ri, rj],
            ),
            name="dweight",
        )
    ]


@formulation("conv2d", "weight_grad", "nhwc", applies=lambda conv: conv.groups == 1)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """GEMM over (n,oh,ow) with both operands channels-last: the output channel is contiguous."""
    x, dy = inputs
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    xp = padded_nhwc(x, conv)
    dyp = te.compute(
        (conv.n, conv.oh, conv.ow, conv.k), lambda b, i, j, o: dy[b, o, i, j], name="dy_nhwc"
    )
    rn = te.reduce_axis((0, conv.n), "rn")
    ri, rj = te.reduce_axis((0, conv.oh), "ri"), te.reduce_axis((0, conv.ow), "rj")
    acc = te.compute(
        (conv.r, conv.s, conv.c, conv.k),
        lambda r, s, i, o: te.sum(
            xp[rn, ri * sh + r * dh, rj * sw + s * dw, i] * dyp[rn, ri, rj, o], axis=[rn, ri, rj]
        ),
        name="dweight_rsck",
    )
    return [
        te.compute(
            (conv.k, conv.c, conv.r, conv.s), lambda o, i, r, s: acc[r, s, i, o], name="dweight"
        )
    ]


@formulation("conv2d", "weight_grad", "split_rows", applies=lambda conv: conv.n * conv.oh > 1)
def split_rows(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Split-K: one partial gradient an output row, then a sum over rows.

    The reduction over (n,oh,ow) is long and the result small, so a partial result an output row is what
    gives a parallel device work to share (Ansor and cuDNN's split-K weight gradients do the same).
    """
    x, dy = inputs
    xp = padded(x, conv)
    (sh, sw), (dh, dw) = conv.stride, conv.dilation
    per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    rn, rj = te.reduce_axis((0, conv.n), "rn"), te.reduce_axis((0, conv.ow), "rj")

    def channel(o: Any, i: Any) -> Any:
        return i if conv.groups == 1 else o // k_per_group * per_group + i

    partial = te.compute(
        (conv.oh, conv.k, per_group, conv.r, conv.s),
        lambda row, o, i, r, s: te.sum(
            dy[rn, o, row, rj] * xp[rn, channel(o, i), row * sh + r * dh, rj * sw + s * dw],
            axis=[rn, rj],
        ),
        name="dweight_rows",
    )
    row = te.reduce_axis((0, conv.oh), "row")
    return [
        te.compute(
            (conv.k, per_group, conv.r, conv.s),
            lambda o, i, r, s: te.sum(partial[row, o, i, r, s], axis=row),
            name="dweight",
        )
    ]
