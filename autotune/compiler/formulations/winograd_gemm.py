"""Winograd's minimal filtering F(4x4, 3x3) and F(4x4, 5x5) as matrix products, for the rule `implicit_gemm`.

A tile of 4x4 outputs takes 36 products instead of 144 for 3x3 filters, and 64 instead of 400 for 5x5 filters (Lavin
and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016). Each element of a transformed tile is one
matrix product: over channels, or in the weight gradient over tiles, with dy as the filter. Separate kernels
transform the tensors in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.implicit_gemm import (
    DEPTH,
    EXTENT,
    RULE,
    Operand,
    matrix_product,
    padded,
)
from autotune.compiler.formulations.layouts import (
    compute,
    compute_filters,
    filter_reader,
    or_zero,
    reader,
)
from autotune.compiler.formulations.registry import TRANSFORM, Tensors, formulation
from autotune.workloads.operators import Conv2d

_TILE = 4
_WINDOWS = (3, 5)
_FEWEST_CHANNELS = 8
_SMALLEST = 7
_POINTS = tuple(map(Fraction, ("0", "-1", "1", "1/2", "-2", "-1/2", "2")))
"""Interpolation points. With 1/2 and -2, the error of 3x3 filters is a quarter of that with 2 and -2 (Barabasz et
al., "Error Analysis and Improving the Accuracy of Winograd Convolution", ACM TOMS 2020)."""

Matrix = Sequence[Sequence[Fraction]]
Value = Callable[[Any, Any, Any, Any], Any]
"""Returns an element at (row in a tile, column in a tile, channel or channel pair, tile or second channel)."""


def _pays(conv: Conv2d) -> bool:
    fits = (conv.stride, conv.dilation, conv.groups) == ((1, 1), (1, 1), 1)
    fits = fits and conv.r == conv.s and conv.r in _WINDOWS and max(conv.pad) < conv.r
    # For smaller images, few products form a sum, and the error is that of the whole tile.
    large = min(conv.h, conv.w, conv.oh, conv.ow) >= _SMALLEST
    return fits and large and min(conv.c, conv.k) >= _FEWEST_CHANNELS


def matrices(outputs: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Returns the transforms of F(outputs, taps), as rows: of inputs, of filters, and of products.

    They are the transposed Toom-Cook multiplication of polynomials, at the required number of points including
    infinity (Winograd, "Arithmetic Complexity of Computations", SIAM 1980).
    """
    size = outputs + taps - 1
    points = _POINTS[: size - 1]
    inputs = [_monic([one for one in points if one != point]) for point in points]
    filters = [
        [point**k / prod(point - one for one in points if one != point) for k in range(taps)]
        for point in points
    ]
    products = [[point**i for point in points] for i in range(outputs)]
    return (
        [[*row, Fraction(0)] for row in inputs] + [_monic(points)],
        [*filters, [Fraction(k == taps - 1) for k in range(taps)]],
        [[*row, Fraction(i == outputs - 1)] for i, row in enumerate(products)],
    )


def _monic(roots: Sequence[Fraction]) -> list[Fraction]:
    """Returns the coefficients of the monic polynomial with these roots, constant term first."""
    found = [Fraction(1)]
    for root in roots:
        shifted, scaled = [Fraction(0), *found], [root * one for one in found] + [Fraction(0)]
        found = [a - b for a, b in zip(shifted, scaled, strict=True)]
    return found


def _weighted(weights: Sequence[Fraction], read: Callable[[int], Any]) -> Any:
    terms = [
        read(place) if weight == 1 else read(place) * te.const(float(weight), "float32")
        for place, weight in enumerate(weights)
        if weight
    ]
    return sum(terms[1:], terms[0])


def entry(matrix: Matrix, row: Any, read: Callable[[int], Any]) -> Any:
    """Returns an entry of a matrix times the values read. The row is known after loops are unrolled."""
    found = _weighted(matrix[-1], read)
    for index in reversed(range(len(matrix) - 1)):
        found = tirx.Select(row == index, _weighted(matrix[index], read), found)
    return found


def _transformed(matrix: Matrix, value: Value, extents: tuple[int, int], name: str) -> Any:
    """Returns matrix x tile x matrix^T for each tile, as (row, column, *extents)."""
    long, short = len(matrix), len(matrix[0])
    tile = te.compute((short, short, *extents), value, name=f"{name}_tile")
    half = te.compute(
        (long, short, *extents),
        lambda e, b, x, y: entry(matrix, e, lambda a: tile[a, b, x, y]),
        name=f"{name}_half",
    )
    return te.compute(
        (long, long, *extents),
        lambda e, f, x, y: entry(matrix, f, lambda b: half[e, b, x, y]),
        name=name,
        attrs={TRANSFORM: 1},
    )


@dataclass(frozen=True)
class _Axis:
    """An axis of transformed tensors, after the axes of their tiles; `summed` if the products sum over it."""

    extent: int
    summed: bool

    @property
    def long(self) -> int:
        """The extent, padded so that tiles of products divide it."""
        return padded(self.extent, DEPTH if self.summed else EXTENT)


_Axes = tuple[_Axis, _Axis]


def _operand(conv: Conv2d, matrix: Matrix, value: Value, axes: _Axes, name: str) -> Operand:
    """Returns a transformed tensor as a side of the products.

    The second of its axes is contiguous; with channels last, the first."""
    x, y = order = axes[::-1] if conv.channels_last else axes
    size, along_depth = len(matrix), y.summed

    def framed(a: Any, b: Any, *at: Any) -> Any:
        element = value(a, b, *(at[::-1] if conv.channels_last else at))
        return or_zero(
            [i < one.extent for i, one in zip(at, order, strict=True) if one.long > one.extent],
            element,
        )

    tensor = _transformed(matrix, framed, (x.long, y.long), name)

    def read(g: Any, i: Any, k: Any) -> Any:
        return tensor[(g // size, g % size, *((i, k) if along_depth else (k, i)))]

    return Operand((x if along_depth else y).long, read, along_depth=along_depth)


def _products(
    conv: Conv2d, matrix: Matrix, sides: tuple[Operand, Operand], depth: int, name: str
) -> Any:
    """Returns the transform of the products, as (row, column, *axes). With channels last, the axes are swapped."""
    size = len(matrix[0])
    a, b = sides[::-1] if conv.channels_last else sides
    product = matrix_product(a, b, depth, batch=size * size, transformed=True)
    made = _transformed(
        matrix, lambda e, f, x, y: product(e * size + f, x, y), (a.extent, b.extent), name
    )
    return (lambda e, f, x, y: made[e, f, y, x]) if conv.channels_last else lambda *at: made[at]


class _Grid:
    """The tiles of a batch of images."""

    def __init__(self, conv: Conv2d, size: tuple[int, int]) -> None:
        self._conv = conv
        self._high, self._wide = (-(-extent // _TILE) for extent in size)
        self.count = conv.n * self._high * self._wide

    def tiles(self, image: Any, size: tuple[int, int], first: tuple[int, int]) -> Value:
        """Reads tiles with zeros around the image. The first tile begins at row and column `first` of the image."""
        read, (high, wide) = reader(self._conv, image), size

        def value(a: Any, b: Any, i: Any, p: Any) -> Any:
            y = p // self._wide % self._high * _TILE + a + first[0]
            z = p % self._wide * _TILE + b + first[1]
            inside = [y >= 0, y < high, z >= 0, z < wide]
            return or_zero(inside, read(p // (self._high * self._wide), i, y, z))

        return value

    def at(self, b: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
        """Returns the tile of a pixel, and the pixel's row and column in it."""
        return (b * self._high + y // _TILE) * self._wide + z // _TILE, y % _TILE, z % _TILE


def _filtered(
    conv: Conv2d,
    image: Any,
    size: tuple[int, int],
    first: tuple[int, int],
    made: tuple[int, int, int],
    filters: Value,
    name: str,
) -> Tensors:
    """Returns the image that results from filtering another image.

    Args:
        conv: Gives the layout and the filters' size.
        image: The image to filter.
        size: Height and width of the image.
        first: Row and column of the image under the first tap of the first output.
        made: Channels, height and width of the result.
        filters: Returns taps at (r, s, k, c).
        name: Name of the result.
    """
    inputs, taps, outputs = matrices(_TILE, conv.r)
    grid, forward = _Grid(conv, made[1:]), name == "y"
    o, i = _Axis(conv.k, summed=not forward), _Axis(conv.c, summed=forward)
    depth, result = (i, o) if forward else (o, i)
    pixels = (depth, _Axis(grid.count, summed=False))
    sides = (
        _operand(conv, taps, filters, (o, i), "filters"),
        _operand(conv, inputs, grid.tiles(image, size, first), pixels, "image"),
    )
    products = _products(conv, outputs, sides, depth.long, "outputs")

    def value(b: Any, channel: Any, y: Any, z: Any) -> Any:
        tile, row, column = grid.at(b, y, z)
        return products(row, column, channel, tile)

    return [compute(conv, (conv.n, result.extent, *made[1:]), value, name)]


@formulation("conv2d", "forward", "winograd_gemm", rule=RULE, applies=_pays)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y is x, filtered with the weight."""
    x, weight = inputs
    filters = filter_reader(conv, weight)
    return _filtered(
        conv,
        x,
        (conv.h, conv.w),
        (-conv.pad[0], -conv.pad[1]),
        (conv.k, conv.oh, conv.ow),
        lambda r, s, o, i: filters(o, i, r, s),
        "y",
    )


@formulation("conv2d", "data_grad", "winograd_gemm", rule=RULE, applies=_pays)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx is dy, filtered with the weight rotated by 180 degrees."""
    dy, weight = inputs
    filters = filter_reader(conv, weight)
    return _filtered(
        conv,
        dy,
        (conv.oh, conv.ow),
        (conv.pad[0] - conv.r + 1, conv.pad[1] - conv.s + 1),
        (conv.c, conv.h, conv.w),
        lambda r, s, o, i: filters(o, i, conv.r - 1 - r, conv.s - 1 - s),
        "dx",
    )


@formulation("conv2d", "weight_grad", "winograd_gemm", rule=RULE, applies=_pays)
def weight_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dweight is x, filtered by dy tile by tile: F(3x3, 4x4), with products summed over tiles."""
    x, dy = inputs
    inputs_of, filters_of, outputs = matrices(conv.r, _TILE)
    grid = _Grid(conv, (conv.oh, conv.ow))
    tiles = _Axis(grid.count, summed=True)
    gradient = grid.tiles(dy, (conv.oh, conv.ow), (0, 0))
    seen = grid.tiles(x, (conv.h, conv.w), (-conv.pad[0], -conv.pad[1]))
    sides = (
        _operand(conv, filters_of, gradient, (_Axis(conv.k, summed=False), tiles), "gradient"),
        _operand(conv, inputs_of, seen, (_Axis(conv.c, summed=False), tiles), "image"),
    )
    products = _products(conv, outputs, sides, tiles.long, "outputs")
    return [compute_filters(conv, lambda o, i, r, s: products(r, s, o, i), "dweight")]
