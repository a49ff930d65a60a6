"""Float64 references of convolution and matmul, by im2col and BLAS, one image at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.operators import Conv2d, Matmul, Role

Array = NDArray[np.float64]


def conv2d(operator: Conv2d, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of a convolution. Its extra memory is that of one image's columns."""
    groups = operator.groups
    taps = operator.c // groups * operator.r * operator.s
    pixels = operator.oh * operator.ow
    if role == "data_grad":
        dy, weight = inputs
        transposed = weight.reshape(groups, -1, taps).transpose(0, 2, 1)
        dx = np.empty((operator.n, operator.c, operator.h, operator.w))
        for image in range(operator.n):
            columns = np.matmul(transposed, dy[image].reshape(groups, -1, pixels))
            dx[image] = _fold(operator, columns)
        return [dx]
    if role == "forward":
        x, weight = inputs
        matrix = weight.reshape(groups, -1, taps)
        y = np.empty((operator.n, operator.k, operator.oh, operator.ow))
        for image in range(operator.n):
            columns = _unfold(operator, x[image]).reshape(groups, taps, pixels)
            y[image] = np.matmul(matrix, columns).reshape(y.shape[1:])
        return [y]
    x, dy = inputs
    dweight = np.zeros((groups, operator.k // groups, taps))
    for image in range(operator.n):
        columns = _unfold(operator, x[image]).reshape(groups, taps, pixels)
        dweight += np.matmul(dy[image].reshape(groups, -1, pixels), columns.transpose(0, 2, 1))
    return [dweight.reshape(operator.k, -1, operator.r, operator.s)]


def matmul(operator: Matmul, role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of a fully connected layer."""
    first, second = inputs
    if role == "forward":
        return [first @ second.T]
    if role == "data_grad":
        return [first @ second]
    return [second.T @ first]


def _windows(operator: Conv2d) -> Iterator[tuple[int, int, slice, slice]]:
    """Yields each tap with the rows and columns of the padded image that it reads."""
    for r in range(operator.r):
        top = r * operator.dilation[0]
        rows = slice(top, top + (operator.oh - 1) * operator.stride[0] + 1, operator.stride[0])
        for s in range(operator.s):
            left = s * operator.dilation[1]
            last = left + (operator.ow - 1) * operator.stride[1]
            yield r, s, rows, slice(left, last + 1, operator.stride[1])


def _unfold(operator: Conv2d, image: Array) -> Array:
    """Returns the columns [c, r, s, oh, ow] of one image [c, h, w] (im2col)."""
    (top, left), shape = operator.pad, (operator.oh, operator.ow)
    padded = np.pad(image, ((0, 0), (top, top), (left, left)))
    columns = np.empty((operator.c, operator.r, operator.s, *shape))
    for r, s, rows, cols in _windows(operator):
        columns[:, r, s] = padded[:, rows, cols]
    return columns


def _fold(operator: Conv2d, columns: Array) -> Array:
    """Sums columns into one image [c, h, w]; the transpose of ``_unfold`` (col2im)."""
    c, h, w = operator.c, operator.h, operator.w
    top, left = operator.pad
    columns = columns.reshape(c, operator.r, operator.s, operator.oh, operator.ow)
    padded = np.zeros((c, h + 2 * top, w + 2 * left))
    for r, s, rows, cols in _windows(operator):
        padded[:, rows, cols] += columns[:, r, s]
    return padded[:, top : top + h, left : left + w]


def bmm(role: Role, inputs: list[Array]) -> list[Array]:
    """Computes one role of a batched matrix product."""
    first, second = inputs
    if role == "forward":
        return [first @ second.transpose(0, 2, 1)]
    if role == "data_grad":
        return [first @ second]
    return [second.transpose(0, 2, 1) @ first]
