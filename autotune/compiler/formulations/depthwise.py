"""Depthwise convolutions for the rule `depthwise`. The inputs under the windows are a separate stage.

This stage has zeros around the image. The rule computes it in registers. Rows and columns are padded to lengths
that tiles divide.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import (
    compute,
    compute_filters,
    filter_reader,
    in_fours,
    or_zero,
    reader,
    under_windows,
)
from autotune.compiler.formulations.registry import WINDOW, Attributes, Tensors, formulation
from autotune.compiler.formulations.strides import carried, shifted
from autotune.workloads.operators import Conv2d

RULE = "depthwise"


def depthwise(conv: Conv2d) -> bool:
    """Returns whether every channel is convolved by itself, and its pixels are contiguous in memory."""
    # With channels last, neighbours in memory are other channels. The rule's tiles do not run along channels.
    return conv.groups == conv.c == conv.k > 1 and not conv.channels_last


def divisible(conv: Conv2d) -> bool:
    """Returns whether the kernel is depthwise, and the taps of its data gradient can be split by phase."""
    return depthwise(conv) and (conv.stride == (1, 1) or conv.dilation == (1, 1))


def _mark(conv: Conv2d, *, filters: bool, stride: tuple[int, int]) -> dict[str, list[int]]:
    return {WINDOW: [int(filters), *stride, *conv.dilation]}


@formulation("conv2d", "forward", "windows", rule=RULE, applies=depthwise)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[plane, i, j] = sum of x[plane, i*sh+r*dh-ph, j*sw+s*dw-pw] weight[channel, r, s]."""
    x, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    rows, columns, planes = in_fours(conv.oh), in_fours(conv.ow), conv.n * conv.c
    image, filters = reader(conv, x), filter_reader(conv, weight)
    high = (rows - 1) * sh + (conv.r - 1) * dh + 1
    wide = (columns - 1) * sw + (conv.s - 1) * dw + 1
    seen = under_windows(
        (conv.h, conv.w),
        (-ph, -pw),
        lambda p, y, z: image(p // conv.c, p % conv.c, y, z),
        (planes, high, wide),
    )
    taps = te.compute((conv.c, conv.r, conv.s), lambda c, r, s: filters(c, 0, r, s), name="taps")
    r, s = te.reduce_axis((0, conv.r), "r"), te.reduce_axis((0, conv.s), "s")
    window = te.compute(
        (planes, rows, columns, 1, 1),
        lambda p, y, z, u, v: te.sum(
            seen[p, y * sh + r * dh, z * sw + s * dw] * taps[p % conv.c, r, s], axis=[r, s]
        ),
        name="window",
        attrs=_mark(conv, filters=False, stride=conv.stride),
    )

    def value(b: Any, c: Any, i: Any, j: Any) -> Any:
        return window[b * conv.c + c, i, j, 0, 0]

    return [compute(conv, (conv.n, conv.c, conv.oh, conv.ow), value, "y")]


@formulation("conv2d", "data_grad", "windows", rule=RULE, applies=divisible)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `gradient_windows`."""
    rows, columns = positions(conv)
    mark = _mark(conv, filters=False, stride=(1, 1))
    return gradient_windows(conv, inputs, (in_fours(rows), in_fours(columns)), mark)


def positions(conv: Conv2d) -> tuple[int, int]:
    """Returns the number of rows and columns of positions (stride x stride pixels) that cover an image."""
    return -(-conv.h // conv.stride[0]), -(-conv.w // conv.stride[1])


def gradient_windows(
    conv: Conv2d, inputs: Tensors, size: tuple[int, int], attrs: Attributes
) -> Tensors:
    """dx[plane, i, j] = sum of dy[plane, (i+ph-r*dh)/sh, (j+pw-s*dw)/sw] weight[channel, r, s].

    A position is stride x stride pixels. Each pixel uses every stride-th tap.

    Args:
        conv: A depthwise convolution at stride 1 or without dilation.
        inputs: dy and the weight.
        size: Number of rows and columns of positions: `positions`, or more.
        attrs: Marks of the block that sums.
    """
    dy, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    th, tw = -(-conv.r // sh), -(-conv.s // sw)
    (rows, columns), planes = size, conv.n * conv.c
    gradient, filters = reader(conv, dy), filter_reader(conv, weight)
    seen = under_windows(
        (conv.oh, conv.ow),
        (ph // sh - (th - 1) * dh, pw // sw - (tw - 1) * dw),
        lambda p, y, z: gradient(p // conv.c, p % conv.c, y, z),
        (
            planes,
            rows + (sh - 1 + ph) // sh - ph // sh + (th - 1) * dh,
            columns + (sw - 1 + pw) // sw - pw // sw + (tw - 1) * dw,
        ),
    )

    def tap(c: Any, u: Any, v: Any, t: Any, w: Any) -> Any:
        r, s = shifted(u, ph, sh) + t * sh, shifted(v, pw, sw) + w * sw
        value = filters(c, 0, r, s)
        beyond = [r < conv.r] * (th * sh > conv.r) + [s < conv.s] * (tw * sw > conv.s)
        return or_zero(beyond, value)

    taps = te.compute((conv.c, sh, sw, th, tw), tap, name="taps")
    t, w = te.reduce_axis((0, th), "r"), te.reduce_axis((0, tw), "s")

    def under(p: Any, y: Any, z: Any, u: Any, v: Any) -> Any:
        moved_y = y + carried(u, ph, sh) - ph // sh + (th - 1 - t) * dh
        moved_z = z + carried(v, pw, sw) - pw // sw + (tw - 1 - w) * dw
        return seen[p, moved_y, moved_z] * taps[p % conv.c, u, v, t, w]

    window = te.compute(
        (planes, rows, columns, sh, sw),
        lambda *at: te.sum(under(*at), axis=[t, w]),
        name="window",
        attrs=attrs,
    )

    def value(b: Any, c: Any, i: Any, j: Any) -> Any:
        return window[b * conv.c + c, i // sh, j // sw, i % sh, j % sw]

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]


@formulation("conv2d", "weight_grad", "windows", rule=RULE, applies=depthwise)
def weight_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dweight[channel, r, s] = sum over all pixels of dy[plane, i, j] x[plane, i*sh+r*dh-ph, j*sw+s*dw-pw]."""
    x, dy = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    rows, columns = in_fours(conv.oh), in_fours(conv.ow)
    high = (rows - 1) * sh + (conv.r - 1) * dh + 1
    wide = (columns - 1) * sw + (conv.s - 1) * dw + 1
    seen = under_windows(
        (conv.h, conv.w), (-ph, -pw), reader(conv, x), (conv.n, conv.c, high, wide)
    )
    gradient = reader(conv, dy)
    framed = te.compute(
        (conv.n, conv.c, rows, columns),
        lambda n, c, i, j: or_zero([i < conv.oh, j < conv.ow], gradient(n, c, i, j)),
        name="gradient",
    )
    n = te.reduce_axis((0, conv.n), "n")
    i, j = te.reduce_axis((0, rows), "i"), te.reduce_axis((0, columns), "j")
    window = te.compute(
        (conv.c, conv.r, conv.s),
        lambda c, r, s: te.sum(
            seen[n, c, i * sh + r * dh, j * sw + s * dw] * framed[n, c, i, j], axis=[n, i, j]
        ),
        name="window",
        attrs=_mark(conv, filters=True, stride=conv.stride),
    )
    return [compute_filters(conv, lambda o, i, r, s: window[o, r, s], "dweight")]
