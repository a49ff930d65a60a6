"""Data gradient of a convolution, without zeros inserted between the gradient's elements.

dx[n,c,h,w] = sum over k,r,s of dy[n,k,(h+ph-r*dh)/sh,(w+pw-s*dw)/sw] * weight[k,c,r,s], over the taps where the
divisions leave no remainder and the index lies inside dy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from autotune.compiler.formulations.conv2d_forward import Read
from autotune.compiler.formulations.layouts import (
    compute,
    filter_reader,
    from_last,
    reader,
    rounded_up,
    zeros_after,
)
from autotune.compiler.formulations.matmul import padded_sums
from autotune.compiler.formulations.registry import Attributes, Tensors, formulation
from autotune.compiler.formulations.strides import Phases, divided
from autotune.workloads.operators import Conv2d


def _by_phase(conv: Conv2d) -> bool:
    """Returns whether the taps can be split by phase: at stride 1, or if they are adjacent (dilation 1)."""
    return conv.stride == (1, 1) or conv.dilation == (1, 1)


def _framed(conv: Conv2d) -> bool:
    """Returns whether taps reach beyond dy."""
    return _reach(conv) != ((0, 0), (conv.oh, conv.ow))


def _guarded(conv: Conv2d, dy: Any, low: tuple[int, int], size: tuple[int, int]) -> Read:
    """Reads dy with zeros around it: element [i, j] is dy[i - low, j - low] if that exists."""
    read = reader(conv, dy)
    if low == (0, 0) and size == (conv.oh, conv.ow):
        return read

    def value(b: Any, o: Any, i: Any, j: Any) -> Any:
        inside = te.all(i >= low[0], i < conv.oh + low[0], j >= low[1], j < conv.ow + low[1])
        return te.if_then_else(inside, read(b, o, i - low[0], j - low[1]), te.const(0.0, dy.dtype))

    return value


def _gathered(conv: Conv2d, dy: Any, low: tuple[int, int], size: tuple[int, int]) -> Read:
    """Like `_guarded`, but reads from a padded copy of dy, unless no padding is needed."""
    value = _guarded(conv, dy, low, size)
    if low == (0, 0) and size == (conv.oh, conv.ow):
        return value
    return reader(conv, compute(conv, (conv.n, conv.k, *size), value, "dy_pad"))


def _reach(conv: Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the number of zeros needed before dy, and the padded size of dy, per spatial axis."""
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


def _filter_of(conv: Conv2d) -> Callable[[Any, Any], Any]:
    """Returns a map from (input channel, output channel in its group) to the output channel."""
    c_per_group, k_per_group = conv.c // conv.groups, conv.k // conv.groups
    if conv.groups == 1:
        return lambda i, o: o
    return lambda i, o: i // c_per_group * k_per_group + o


def _transposed(conv: Conv2d, dy: Read, filters: Read) -> Tensors:
    """Builds the gradient by phase, from dy padded as in `_reach` and filters [k,c,r,s].

    The indices r and s may exceed the last tap. At stride 1 there is one phase. Otherwise dx[y] uses the taps r for
    which (y + ph - r) is divisible by the stride: r = (y + ph) % stride + t * stride.
    """
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    low, _ = _reach(conv)
    c_per_group, filter_of = conv.c // conv.groups, _filter_of(conv)
    rk = te.reduce_axis((0, conv.k // conv.groups), "rk")
    th, tw = -(-conv.r // sh), -(-conv.s // sw)
    rr, rs = te.reduce_axis((0, th), "rr"), te.reduce_axis((0, tw), "rs")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        o = filter_of(i, rk)
        if conv.stride == (1, 1):
            at = y + ph + low[0] - rr * dh, z + pw + low[1] - rs * dw
            tap = rr, rs
        else:
            (whole_y, phase_y), (whole_z, phase_z) = divided(y, ph, sh), divided(z, pw, sw)
            at = whole_y + low[0] - rr, whole_z + low[1] - rs
            tap = phase_y + rr * sh, phase_z + rs * sw
        within = i if conv.groups == 1 else i % c_per_group
        axes = [rr, rs, rk] if conv.channels_last else [rk, rr, rs]
        return te.sum(dy(b, o, *at) * filters(o, within, *tap), axis=axes)

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]


def _with_zeros(conv: Conv2d, weight: Any) -> Read:
    """Reads filters [k,c,r,s], and zeros after the last tap."""
    read = filter_reader(conv, weight)

    def value(o: Any, i: Any, r: Any, s: Any) -> Any:
        zero = te.const(0.0, weight.dtype)
        return te.if_then_else(te.all(r < conv.r, s < conv.s), read(o, i, r, s), zero)

    return value


def _whole_phases(conv: Conv2d, weight: Any, *, packed: bool) -> Read:
    """Reads filters [k,c,r,s], zero-padded to a multiple of the stride; if packed, from a copy [r,s,k,c]."""
    read = filter_reader(conv, weight)
    (sh, sw), c_per_group = conv.stride, conv.c // conv.groups
    high, wide = rounded_up(conv.r, sh), rounded_up(conv.s, sw)
    value = read if (high, wide) == (conv.r, conv.s) else _with_zeros(conv, weight)
    if packed:
        copy = te.compute(
            (high, wide, conv.k, c_per_group),
            lambda r, s, o, i: value(o, i, r, s),
            name="weight_rskc",
        )
        return lambda o, i, r, s: copy[r, s, o, i]
    if value is read:
        return read
    shape = (
        (high, wide, c_per_group, conv.k)
        if conv.channels_last
        else (conv.k, c_per_group, high, wide)
    )
    copy = te.compute(
        shape,
        (lambda r, s, i, o: value(o, i, r, s)) if conv.channels_last else value,
        name="weight_pad",
    )
    return filter_reader(conv, copy)


@formulation("conv2d", "data_grad", "direct")
def direct(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Gathers by phase if possible. With both stride and dilation above 1, it tests each tap instead."""
    dy, weight = inputs
    if _by_phase(conv):
        gradient = _gathered(conv, dy, *_reach(conv))
        return _transposed(conv, gradient, _whole_phases(conv, weight, packed=False))
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    gradient, filters, filter_of = reader(conv, dy), filter_reader(conv, weight), _filter_of(conv)
    c_per_group = conv.c // conv.groups
    rk = te.reduce_axis((0, conv.k // conv.groups), "rk")
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        top, left, o = y + ph - rr * dh, z + pw - rs * dw, filter_of(i, rk)
        inside = te.all(
            top >= 0,
            top < conv.oh * sh,
            top % sh == 0,
            left >= 0,
            left < conv.ow * sw,
            left % sw == 0,
        )
        product = gradient(b, o, top // sh, left // sw) * filters(o, i % c_per_group, rr, rs)
        return te.sum(te.if_then_else(inside, product, te.const(0.0, dy.dtype)), axis=[rk, rr, rs])

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]


def _dense_last(conv: Conv2d) -> bool:
    return conv.channels_last and conv.groups == 1


@formulation(
    "conv2d", "data_grad", "packed", applies=lambda conv: _dense_last(conv) and _by_phase(conv)
)
def packed(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Gathers by phase, with filters transposed to [r,s,k,c], so that the input channel is the contiguous axis."""
    dy, weight = inputs
    gradient = _gathered(conv, dy, *_reach(conv))
    return _transposed(conv, gradient, _whole_phases(conv, weight, packed=True))


@formulation(
    "conv2d",
    "data_grad",
    "guarded",
    applies=lambda conv: conv.channels_last and _by_phase(conv) and _framed(conv),
)
def without_copy(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Like `packed` (with groups, like `direct`), but tests for the padding instead of copying dy."""
    dy, weight = inputs
    gradient = _guarded(conv, dy, *_reach(conv))
    return _transposed(conv, gradient, _whole_phases(conv, weight, packed=conv.groups == 1))


@formulation(
    "conv2d",
    "data_grad",
    "col2im",
    applies=lambda conv: _dense_last(conv) and conv.r * conv.s > 1 and conv.stride != (1, 1),
)
def col2im(conv: Conv2d, inputs: Tensors) -> Tensors:
    """GEMM of dy with the filters into columns, which are then summed where they overlap.

    No product is wasted, whatever the stride. The columns are r * s times as large as their share of dx.
    """
    dy, weight = inputs
    wp = te.compute(
        (conv.k, conv.r, conv.s, conv.c), lambda o, r, s, i: weight[r, s, i, o], name="weight_krsc"
    )
    rk = te.reduce_axis((0, conv.k), "rk")
    columns = te.compute(
        (conv.n, conv.oh, conv.ow, conv.r, conv.s, conv.c),
        lambda b, p, q, r, s, i: te.sum(dy[b, p, q, rk] * wp[rk, r, s, i], axis=rk),
        name="columns",
    )
    return _overlapping(conv, lambda b, p, q, r, s, i: columns[b, p, q, r, s, i], dy.dtype)


def col2im_product(conv: Conv2d, inputs: Tensors, attrs: Attributes) -> Tensors:
    """Like `col2im`, with a product whose columns are taps and channels together.

    Args:
        conv: A convolution with channels last, without groups.
        inputs: dy and the weight.
        attrs: Marks of the block that multiplies.
    """
    dy, weight = inputs
    taps, c = conv.r * conv.s, conv.c
    wp = te.compute(
        (conv.k, taps * c),
        lambda o, j: weight[j // c // conv.s, j // c % conv.s, j % c, o],
        name="weight_columns",
    )
    rk = te.reduce_axis((0, conv.k), "rk")
    columns = te.compute(
        (conv.n, conv.oh, conv.ow, taps * c),
        lambda b, p, q, j: te.sum(dy[b, p, q, rk] * wp[rk, j], axis=rk),
        name="columns",
        attrs=attrs,
    )
    return _overlapping(
        conv, lambda b, p, q, r, s, i: columns[b, p, q, (r * conv.s + s) * c + i], dy.dtype
    )


def pixel_product(conv: Conv2d, inputs: Tensors, vector: int, attrs: Attributes) -> Tensors:
    """Multiplies filters as they are stored with columns of dy, one for each pixel; the result is transposed.

    Columns of zeros are added to those of the pixels until they fill vectors.

    The filters of a layer with many channels and few pixels are larger than its images. Here they are read once,
    and not copied.

    Args:
        conv: A convolution with channels last, without groups, at stride 1.
        inputs: dy and the weight.
        vector: Elements of a vector.
        attrs: Marks of the block that multiplies.
    """
    dy, weight = inputs
    (ph, pw), (dh, dw), (h, w) = conv.pad, conv.dilation, (conv.h, conv.w)
    low, size = _reach(conv)
    read = _guarded(conv, dy, low, size)

    def column(r: Any, s: Any, o: Any, p: Any) -> Any:
        y, z = p // w % h, p % w
        return read(p // (h * w), o, y + ph + low[0] - r * dh, z + pw + low[1] - s * dw)

    taps = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")
    steps = (*taps, te.reduce_axis((0, conv.k), "rk"))
    sums = padded_sums(
        (conv.c, conv.n * h * w),
        steps,
        lambda i, r, s, o: weight[r, s, i, o],
        column,
        vector,
        dy.dtype,
        attrs,
    )
    shape = (conv.n, h, w, conv.c)
    return [te.compute(shape, lambda b, y, z, i: sums[i, (b * h + y) * w + z], name="dx")]


def _overlapping(conv: Conv2d, column: Callable[..., Any], dtype: str) -> Tensors:
    """Sums columns where they overlap. A column is read at [sample, row and column of dy, tap, channel]."""
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")

    # Taps are counted from the filter's end: TVM's flattening mistakes (3 - rr) // 2 * 2 + rr for rr // -2 * 2 + rr
    # + 2.
    last_r, last_s = conv.r - 1, conv.s - 1

    def value(b: Any, y: Any, z: Any, i: Any) -> Any:
        top, left = y + rr * dh + (ph - last_r * dh), z + rs * dw + (pw - last_s * dw)
        inside = te.all(
            top >= 0,
            top < conv.oh * sh,
            top % sh == 0,
            left >= 0,
            left < conv.ow * sw,
            left % sw == 0,
        )
        found = column(b, top // sh, left // sw, last_r - rr, last_s - rs, i)
        return te.sum(te.if_then_else(inside, found, te.const(0.0, dtype)), axis=[rr, rs])

    return [te.compute((conv.n, conv.h, conv.w, conv.c), value, name="dx")]


def phases_of(conv: Conv2d) -> tuple[Phases, Phases]:
    """Returns the phases of a convolution's rows and columns."""
    (sh, sw), (ph, pw) = conv.stride, conv.pad
    return Phases.of(conv.h, conv.r, sh, ph), Phases.of(conv.w, conv.s, sw, pw)


def wasted(conv: Conv2d) -> float:
    """Returns how many products `phase_product` computes for each that is needed: it pads all phases alike."""
    rows, columns = phases_of(conv)
    done = rows.count * rows.taps * columns.count * columns.taps
    return done / (conv.r * conv.s)


def phase_product(conv: Conv2d, inputs: Tensors, attrs: Attributes) -> Tensors:
    """A product for each phase, whose pixels are then put in their places. Pixels without a tap are zeros.

    Args:
        conv: A convolution with channels last, without groups and dilation.
        inputs: dy and the weight.
        attrs: Marks of the block that multiplies.
    """
    dy, weight = inputs
    rows, columns = phases_of(conv)
    low, size = (rows.before, columns.before), (rows.padded(conv.oh), columns.padded(conv.ow))
    dyp = dy
    if low != (0, 0) or size != (conv.oh, conv.ow):
        value = _guarded(conv, dy, low, size)
        shape = (conv.n, *size, conv.k)
        dyp = te.compute(shape, lambda b, i, j, o: value(b, o, i, j), name="dy_pad")

    def tap(axis: Phases, phase: Any, t: Any) -> Any:
        # Taps are counted backwards in the copy: if the product did, LLVM would recompute each address.
        return phase + (axis.taps - 1 - t) * axis.stride

    filters = _with_zeros(conv, weight)
    wp = te.compute(
        (rows.count, columns.count, rows.taps, columns.taps, conv.k, conv.c),
        lambda f, g, t, u, o, i: filters(o, i, tap(rows, f, t), tap(columns, g, u)),
        name="weight_phases",
    )
    rk = te.reduce_axis((0, conv.k), "rk")
    rt, ru = te.reduce_axis((0, rows.taps), "rt"), te.reduce_axis((0, columns.taps), "ru")
    acc = te.compute(
        (conv.n, rows.count, columns.count, rows.positions, columns.positions, conv.c),
        lambda b, f, g, y, z, i: te.sum(
            dyp[
                b,
                y + (rows.window(f) + low[0]) + rt,
                z + (columns.window(g) + low[1]) + ru,
                rk,
            ]
            * wp[f, g, rt, ru, rk, i],
            axis=[rt, ru, rk],
        ),
        name="phases",
        attrs=attrs,
    )

    def placed(b: Any, y: Any, z: Any, i: Any) -> Any:
        (f, at), (g, to) = rows.phase(y), columns.phase(z)
        value = acc[b, te.min(f, rows.count - 1), te.min(g, columns.count - 1), at, to, i]
        if rows.count == rows.stride and columns.count == columns.stride:
            return value
        has_tap = te.all(f < rows.count, g < columns.count)
        return te.if_then_else(has_tap, value, te.const(0.0, dy.dtype))

    return [te.compute((conv.n, conv.h, conv.w, conv.c), placed, name="dx")]


def _framed_nhwc(conv: Conv2d, dy: Any) -> tuple[Any, tuple[int, int]]:
    """Returns dy padded as in `_reach`, channels last [n, rows, columns, k], and the number of zeros before it."""
    low, size = _reach(conv)
    value = _guarded(conv, dy, low, size)
    if conv.channels_last and low == (0, 0) and size == (conv.oh, conv.ow):
        return dy, low
    shape = (conv.n, *size, conv.k)
    return te.compute(shape, lambda b, i, j, o: value(b, o, i, j), name="dy_nhwc"), low


@formulation(
    "conv2d",
    "data_grad",
    "nhwc",
    applies=lambda conv: conv.groups == 1 and conv.stride == (1, 1) and not conv.channels_last,
)
def nhwc(conv: Conv2d, inputs: Tensors) -> Tensors:
    """Builds the kernel with `nhwc_product`."""
    return nhwc_product(conv, inputs)


def nhwc_product(
    conv: Conv2d, inputs: Tensors, attrs: Attributes = None, vector: int = 1
) -> Tensors:
    """Implicit GEMM with channels-last operands, which are copied if needed. The input channel is contiguous.

    Args:
        conv: A convolution without groups, at stride 1.
        inputs: dy and the weight.
        attrs: Marks of the block that multiplies.
        vector: Input channels of zeros are added until they are a multiple of this.
    """
    dy, weight = inputs
    (ph, pw), (dh, dw) = conv.pad, conv.dilation
    dyp, low = _framed_nhwc(conv, dy)
    read, wide = filter_reader(conv, weight), rounded_up(conv.c, vector)
    # Filters are mirrored in the copy. If taps counted backwards, LLVM would recompute each address.
    last_r, last_s = conv.r - 1, conv.s - 1
    wp = zeros_after(
        (conv.r, conv.s, conv.k, wide), conv.c,
        lambda r, s, o, i: read(o, i, last_r - r, last_s - s), "weight_rskc",
    )  # fmt: skip
    rk = te.reduce_axis((0, conv.k), "rk")
    rr, rs = te.reduce_axis((0, conv.r), "rr"), te.reduce_axis((0, conv.s), "rs")
    top, left = ph + low[0] - last_r * dh, pw + low[1] - last_s * dw
    acc = te.compute(
        (conv.n, conv.h, conv.w, wide),
        lambda b, y, z, i: te.sum(
            dyp[b, y + top + rr * dh, z + left + rs * dw, rk] * wp[rr, rs, rk, i],
            axis=[rr, rs, rk],
        ),
        name="dx" if conv.channels_last and wide == conv.c else "dx_nhwc",
        attrs=attrs,
    )
    return [from_last(conv, acc, "dx", conv.c)]
