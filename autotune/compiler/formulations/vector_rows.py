"""Depthwise convolutions with channels first, for the rule `vector_rows` on a CPU.

The inputs under the windows are a separate stage, with zeros around the image. The rule computes it plane by plane.
Its columns are sorted by their offset modulo the stride, so that the inputs of a row's results are contiguous. They
are padded to lengths that vectors divide.
"""

from __future__ import annotations

from typing import Any

from tvm import te

from autotune.compiler.formulations.depthwise import (
    depthwise,
    divisible,
    gradient_windows,
    positions,
)
from autotune.compiler.formulations.layouts import (
    compute,
    filter_reader,
    or_zero,
    reader,
    rounded_up,
)
from autotune.compiler.formulations.registry import VECTOR_ROWS, Tensors, formulation
from autotune.workloads.operators import Conv2d

RULE = "vector_rows"
_VECTORS = (32, 16, 8)
_WASTE = 1 / 7
_LEAST = 4


def _padded(columns: int) -> int:
    """Rounds columns up to whole vectors: of 32, 16 or 8 lanes if that adds at most a seventh, otherwise of 4."""
    lengths = (rounded_up(columns, size) for size in _VECTORS)
    few = (length for length in lengths if length - columns <= _WASTE * columns)
    return next(few, rounded_up(columns, _LEAST))


@formulation("conv2d", "forward", "vector_rows", rule=RULE, applies=depthwise)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[plane, i, j] = sum of x[plane, i*sh+r*dh-ph, j*sw+s*dw-pw] weight[channel, r, s]."""
    x, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    planes, columns = conv.n * conv.c, _padded(conv.ow)
    image, filters = reader(conv, x), filter_reader(conv, weight)

    def pixel(p: Any, row: Any, place: Any, column: Any) -> Any:
        y, z = row - ph, column * sw + place - pw
        inside = [y >= 0, y < conv.h, z >= 0, z < conv.w]
        return or_zero(inside, image(p // conv.c, p % conv.c, y, z))

    high, wide = (conv.oh - 1) * sh + (conv.r - 1) * dh + 1, columns + (conv.s - 1) * dw // sw
    seen = te.compute((planes, high, sw, wide), pixel, name="seen")
    taps = te.compute((conv.c, conv.r, conv.s), lambda c, r, s: filters(c, 0, r, s), name="taps")
    r, s = te.reduce_axis((0, conv.r), "r"), te.reduce_axis((0, conv.s), "s")
    column = s * dw
    window = te.compute(
        (planes, conv.oh, columns, 1, 1),
        lambda p, y, z, u, v: te.sum(
            seen[p, y * sh + r * dh, column % sw, z + column // sw] * taps[p % conv.c, r, s],
            axis=[r, s],
        ),
        name="window",
        attrs={VECTOR_ROWS: 1},
    )

    def value(b: Any, c: Any, i: Any, j: Any) -> Any:
        return window[b * conv.c + c, i, j, 0, 0]

    return [compute(conv, (conv.n, conv.k, conv.oh, conv.ow), value, "y")]


@formulation("conv2d", "data_grad", "vector_rows", rule=RULE, applies=divisible)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """See `gradient_windows`: split by the stride's phases, the inputs of a row's results are contiguous in dy."""
    rows, columns = positions(conv)
    return gradient_windows(conv, inputs, (rows, _padded(columns)), {VECTOR_ROWS: 1})
