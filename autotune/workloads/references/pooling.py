"""Float64 references of pooling, one tap of the window at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import AvgPool2d, GlobalAvgPool, MaxPool2d, Role

Array = NDArray[np.float64]
Index = NDArray[np.int32]
Pool = MaxPool2d | AvgPool2d


def max_pool2d_forward(operator: MaxPool2d, x: Array) -> tuple[Array, Index]:
    """Returns the maxima and the position of the first one in each window (row-major)."""
    padded = np.full((operator.n, operator.c, *_padded_size(operator)), -np.inf)
    padded[_inside(operator)] = x
    y = np.full((operator.n, operator.c, operator.oh, operator.ow), -np.inf)
    index = np.zeros(y.shape, np.int32)
    for tap, window in _taps(operator):
        candidate = padded[window]
        better = candidate > y
        y[better] = candidate[better]
        index[better] = tap
    return y, index


def max_pool2d_data_grad(operator: MaxPool2d, dy: Array, index: Index) -> Array:
    """Returns ``dx``: each ``dy`` is added at the position of its window's maximum."""
    padded = np.zeros((operator.n, operator.c, *_padded_size(operator)))
    for tap, window in _taps(operator):
        padded[window] += np.where(index == tap, dy, 0.0)
    return padded[_inside(operator)]


def avg_pool2d(operator: AvgPool2d, role: Role, array: Array) -> Array:
    """Returns the means of ``x``, or ``dx``: each ``dy`` is distributed over its window."""
    padded = np.zeros((operator.n, operator.c, *_padded_size(operator)))
    share = 1.0 / (operator.r * operator.s)
    if role == "forward":
        padded[_inside(operator)] = array * share
        y = np.zeros((operator.n, operator.c, operator.oh, operator.ow))
        for _, window in _taps(operator):
            y += padded[window]
        return y
    for _, window in _taps(operator):
        padded[window] += array * share
    return padded[_inside(operator)]


def global_avg_pool(operator: GlobalAvgPool, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of global average pooling."""
    if role == "forward":
        return [inputs[0].mean(axis=2)]
    return [np.repeat(inputs[0][:, :, None] / operator.s, operator.s, axis=2)]


def _padded_size(operator: Pool) -> tuple[int, int]:
    """Returns height and width that contain the input, its padding and every window."""
    rows = (operator.oh - 1) * operator.stride[0] + operator.r
    cols = (operator.ow - 1) * operator.stride[1] + operator.s
    (top, left), h, w = operator.pad, operator.h, operator.w
    return max(rows, h + 2 * top), max(cols, w + 2 * left)


def _inside(operator: Pool) -> tuple[slice, slice, slice, slice]:
    (top, left), h, w = operator.pad, operator.h, operator.w
    return slice(None), slice(None), slice(top, top + h), slice(left, left + w)


def _taps(operator: Pool) -> Iterator[tuple[int, tuple[slice, slice, slice, slice]]]:
    """Yields each position in the window with the padded pixels that it reads."""
    down, right = operator.stride
    for r in range(operator.r):
        rows = slice(r, r + (operator.oh - 1) * down + 1, down)
        for s in range(operator.s):
            cols = slice(s, s + (operator.ow - 1) * right + 1, right)
            yield r * operator.s + s, (slice(None), slice(None), rows, cols)
