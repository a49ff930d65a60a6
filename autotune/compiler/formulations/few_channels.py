"""Convolutions of images with few channels, and their data gradients, for the rule `few_channels`.

As a matrix product they have few rows, or a short reduction, so each gathered element is used by few multiply-adds.
Here the inputs under the windows are a separate stage, with the border's zeros. The rule keeps it in registers.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import (
    between,
    compute,
    filter_reader,
    in_fours,
    or_zero,
    reader,
    under_windows,
)
from autotune.compiler.formulations.registry import FEW_CHANNELS, Tensors, formulation
from autotune.compiler.formulations.strides import PositionGrid
from autotune.workloads.operators import Conv2d

RULE = "few_channels"
_MOST_CHANNELS = 4


def _few(conv: Conv2d) -> bool:
    # With channels last, neighbours in memory are other channels of dy, and windows are not contiguous rows.
    return (
        conv.groups == 1
        and conv.c <= _MOST_CHANNELS
        and conv.dilation == (1, 1)
        and not conv.channels_last
    )


@formulation("conv2d", "forward", "few_channels", rule=RULE, applies=_few)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[o, i, j] = sum of weight[o, c, r, s] x[c, i*sh+r-ph, j*sw+s-pw] over c, r and s."""
    x, weight = inputs
    (sh, sw), (ph, pw) = conv.stride, conv.pad
    rows, columns, channels = (in_fours(extent) for extent in (conv.oh, conv.ow, conv.k))
    image, filters = reader(conv, x), filter_reader(conv, weight)

    def tap(c: Any, s: Any, r: Any, o: Any) -> Any:
        return or_zero(between(o, 0, channels - 1, conv.k), filters(o, c, r, s))

    high, wide = (rows - 1) * sh + conv.r, (columns - 1) * sw + conv.s
    seen = under_windows((conv.h, conv.w), (-ph, -pw), image, (conv.n, conv.c, high, wide))
    taps = te.compute((conv.c, conv.s, conv.r, channels), tap, name="taps")
    c = te.reduce_axis((0, conv.c), "c")
    r, s = te.reduce_axis((0, conv.r), "r"), te.reduce_axis((0, conv.s), "s")
    window = te.compute(
        (conv.n, channels, rows, columns, 1, 1),
        lambda b, o, i, j, u, v: te.sum(
            seen[b, c, i * sh + r, j * sw + s] * taps[c, s, r, o], axis=[c, r, s]
        ),
        name="window",
        attrs={FEW_CHANNELS: [0, conv.r, conv.s, sh, sw]},
    )
    shape = (conv.n, conv.k, conv.oh, conv.ow)
    return [compute(conv, shape, lambda b, o, i, j: window[b, o, i, j, 0, 0], "y")]


@formulation("conv2d", "data_grad", "few_channels", rule=RULE, applies=_few)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx[c, phase, position] = sum of weight[k, c, tap of (phase, e, f)] dy[k, position + (e, f)] over k, e and f.

    A position is stride x stride pixels. All its pixels use the same window of dy. Products with taps that a pixel
    does not have are skipped.
    """
    dy, weight = inputs
    down = PositionGrid.of(conv.h, conv.r, conv.stride[0], conv.pad[0])
    across = PositionGrid.of(conv.w, conv.s, conv.stride[1], conv.pad[1])
    rows, columns = in_fours(down.positions), in_fours(across.positions)
    gradient, filters = reader(conv, dy), filter_reader(conv, weight)

    def exists(r: Any, s: Any) -> list[Any]:
        return between(r, -down.least_tap, down.most_tap, conv.r) + between(
            s, -across.least_tap, across.most_tap, conv.s
        )

    def tap(k: Any, c: Any, r: Any, s: Any) -> Any:
        r, s = r + down.least_tap, s + across.least_tap
        return or_zero(exists(r, s), filters(k, c, r, s))

    seen = under_windows(
        (conv.oh, conv.ow),
        (down.first, across.first),
        gradient,
        (conv.n, conv.k, rows + down.taps - 1, columns + across.taps - 1),
    )
    # Includes the zeros around the taps, so that each row is complete and its index follows from the window's
    # index.
    taps = te.compute(
        (conv.k, conv.c, down.taps * down.stride, across.taps * across.stride), tap, name="taps"
    )
    k = te.reduce_axis((0, conv.k), "k")
    e, f = te.reduce_axis((0, down.taps), "e"), te.reduce_axis((0, across.taps), "f")

    def under(b: Any, c: Any, y: Any, z: Any, u: Any, v: Any) -> Any:
        r, s = down.tap(u, e), across.tap(v, f)
        product = seen[b, k, y + e, z + f] * taps[k, c, r - down.least_tap, s - across.least_tap]
        return te.sum(or_zero(exists(r, s), product), axis=[k, e, f])

    window = te.compute(
        (conv.n, conv.c, rows, columns, down.stride, across.stride),
        under,
        name="window",
        attrs={FEW_CHANNELS: [1, conv.r, conv.s, 1, 1]},
    )

    def value(b: Any, c: Any, y: Any, z: Any) -> Any:
        y, z = y + down.shift, z + across.shift
        return window[
            b, c, y // down.stride, z // across.stride, y % down.stride, z % across.stride
        ]

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]
