"""Depthwise convolutions with channels first, for the rule `vector_rows` to schedule on a CPU.

What the windows see is a stage of its own, with zeros around the image; the rule computes it plane by plane. Its
columns are in the order that makes those of a row's results neighbours, and padded to lengths that vectors divide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import compute, filter_reader, or_zero, reader
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.compiler.formulations.strides import carried, shifted
from autotune.compiler.vector_row_tiles import VECTOR_ROWS
from autotune.workloads.operators import Conv2d

RULE = "vector_rows"
_VECTORS = (32, 16, 8)
_WASTE = 1 / 7
_LEAST = 4


def _depthwise(conv: Conv2d) -> bool:
    # With channels last, neighbours in memory are other channels, which any space's rules make vectors of.
    return conv.groups == conv.c == conv.k > 1 and not conv.channels_last


def _divisible(conv: Conv2d) -> bool:
    return _depthwise(conv) and (conv.stride == (1, 1) or conv.dilation == (1, 1))


def _padded(columns: int) -> int:
    """Columns in whole vectors: of 32, where that adds at most a seventh, else of 16, of 8, or of 4."""
    lengths = (-(-columns // size) * size for size in _VECTORS)
    few = (length for length in lengths if length - columns <= _WASTE * columns)
    return next(few, -(-columns // _LEAST) * _LEAST)


def _seen(
    size: tuple[int, int],
    first: tuple[int, int],
    shape: tuple[int, int, int],
    every: int,
    read: Callable[..., Any],
) -> Any:
    """An image with zeros around it, its columns sorted by their place in the stride.

    Args:
        size: Rows and columns of the image.
        first: Row and column of it that are the first here.
        shape: Planes, rows, and columns of each place in the stride.
        every: The stride.
        read: Reads (plane, row, column).

    Returns:
        A tensor [plane, row, column % stride, column // stride].
    """
    planes, high, wide = shape

    def value(p: Any, row: Any, place: Any, column: Any) -> Any:
        y, z = row + first[0], column * every + place + first[1]
        inside = [y >= 0] * (first[0] < 0) + [y < size[0]] * (high + first[0] > size[0])
        return or_zero([*inside, z >= 0, z < size[1]], read(p, y, z))

    return te.compute((planes, high, every, wide), value, name="seen")


def _windows(shape: Sequence[int], taps: tuple[int, int], product: Callable[..., Any]) -> Any:
    """The sums over windows [plane, row, column, row's phase, column's phase]."""
    r, s = te.reduce_axis((0, taps[0]), "r"), te.reduce_axis((0, taps[1]), "s")
    return te.compute(
        tuple(shape),
        lambda *at: te.sum(product(*at, r, s), axis=[r, s]),
        name="window",
        attrs={VECTOR_ROWS: 1},
    )


@formulation("conv2d", "forward", "vector_rows", rule=RULE, applies=_depthwise)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[plane, i, j] = sum of x[plane, i*sh+r*dh-ph, j*sw+s*dw-pw] weight[channel, r, s]."""
    x, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    planes, columns = conv.n * conv.c, _padded(conv.ow)
    image, filters = reader(conv, x), filter_reader(conv, weight)
    seen = _seen(
        (conv.h, conv.w),
        (-ph, -pw),
        (planes, (conv.oh - 1) * sh + (conv.r - 1) * dh + 1, columns + (conv.s - 1) * dw // sw),
        sw,
        lambda p, y, z: image(p // conv.c, p % conv.c, y, z),
    )
    taps = te.compute((conv.c, conv.r, conv.s), lambda c, r, s: filters(c, 0, r, s), name="taps")

    def product(p: Any, y: Any, z: Any, u: Any, v: Any, r: Any, s: Any) -> Any:
        column = s * dw
        return seen[p, y * sh + r * dh, column % sw, z + column // sw] * taps[p % conv.c, r, s]

    window = _windows((planes, conv.oh, columns, 1, 1), (conv.r, conv.s), product)

    def value(b: Any, c: Any, i: Any, j: Any) -> Any:
        return window[b * conv.c + c, i, j, 0, 0]

    return [compute(conv, (conv.n, conv.k, conv.oh, conv.ow), value, "y")]


@formulation("conv2d", "data_grad", "vector_rows", rule=RULE, applies=_divisible)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx[plane, i, j] = sum of dy[plane, (i+ph-r*dh)/sh, (j+pw-s*dw)/sw] weight[channel, r, s].

    A position is stride x stride pixels, each of which takes every stride-th tap.
    """
    dy, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    th, tw = -(-conv.r // sh), -(-conv.s // sw)
    rows, columns = -(-conv.h // sh), _padded(-(-conv.w // sw))
    planes = conv.n * conv.c
    gradient, filters = reader(conv, dy), filter_reader(conv, weight)
    high = rows + (sh - 1 + ph) // sh - ph // sh + (th - 1) * dh
    wide = columns + (sw - 1 + pw) // sw - pw // sw + (tw - 1) * dw
    seen = _seen(
        (conv.oh, conv.ow),
        (ph // sh - (th - 1) * dh, pw // sw - (tw - 1) * dw),
        (planes, high, wide),
        1,
        lambda p, y, z: gradient(p // conv.c, p % conv.c, y, z),
    )

    def tap(c: Any, u: Any, v: Any, t: Any, w: Any) -> Any:
        r, s = shifted(u, ph, sh) + t * sh, shifted(v, pw, sw) + w * sw
        beyond = [r < conv.r] * (th * sh > conv.r) + [s < conv.s] * (tw * sw > conv.s)
        return or_zero(beyond, filters(c, 0, r, s))

    taps = te.compute((conv.c, sh, sw, th, tw), tap, name="taps")

    def product(p: Any, y: Any, z: Any, u: Any, v: Any, t: Any, w: Any) -> Any:
        moved_y = y + carried(u, ph, sh) - ph // sh + (th - 1 - t) * dh
        moved_z = z + carried(v, pw, sw) - pw // sw + (tw - 1 - w) * dw
        return seen[p, moved_y, 0, moved_z] * taps[p % conv.c, u, v, t, w]

    window = _windows((planes, rows, columns, sh, sw), (th, tw), product)

    def value(b: Any, c: Any, i: Any, j: Any) -> Any:
        return window[b * conv.c + c, i // sh, j // sw, i % sh, j % sw]

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]
