"""Winograd's minimal filtering F(2x2, 3x3) for 3x3 convolutions at stride 1, forward and data gradient.

A tile of 2x2 outputs is computed from 4x4 inputs with 16 products instead of 36 (Lavin and Gray, "Fast Algorithms
for Convolutional Neural Networks", CVPR 2016). With channels last, the 16 products over all tiles and channels are
16 matrix products. `winograd` is for the general rules of a space. `winograd_product` is for the rule
`register_product` on a CPU: its transforms are straight-line code over vectors of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.conv2d_forward import guarded
from autotune.compiler.formulations.layouts import filter_reader, or_zero, reader
from autotune.compiler.formulations.registry import (
    REGISTER_PRODUCT,
    TRANSFORM,
    TRANSFORMED,
    Tensors,
    formulation,
)
from autotune.compiler.formulations.winograd_gemm import Matrix, entry, matrices
from autotune.workloads.operators import Conv2d

_FEWEST_CHANNELS = 16
_TILE, _INPUTS, _TAPS = 2, 4, 3
_VECTOR = 8
_FEWEST_TILES = 48
"""With fewer tiles, the transformed filters are larger than the images."""
Read = Callable[..., Any]


def _pays(conv: Conv2d) -> bool:
    window = (conv.r, conv.s, conv.stride, conv.dilation, conv.groups)
    fits = window == (3, 3, (1, 1), (1, 1), 1) and max(conv.pad) <= 2
    return fits and conv.channels_last and min(conv.c, conv.k) >= _FEWEST_CHANNELS


@formulation("conv2d", "forward", "winograd", applies=_pays)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    x, weight = inputs
    read, filters = guarded(x, conv), filter_reader(conv, weight)
    size = (conv.h + 2 * conv.pad[0], conv.w + 2 * conv.pad[1])
    return [
        _filtered(
            (conv.n, conv.oh, conv.ow, conv.c, conv.k),
            _within(lambda b, y, z, i: read(b, i, y, z), size),
            lambda i, o, r, s: filters(o, i, r, s),
            "y",
        )
    ]


@formulation("conv2d", "data_grad", "winograd", applies=_pays)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """A convolution of dy with the filters rotated by 180 degrees; its padding is two minus the forward padding."""
    dy, weight = inputs
    read, filters = reader(conv, dy), filter_reader(conv, weight)
    top, left = 2 - conv.pad[0], 2 - conv.pad[1]

    def framed(b: Any, y: Any, z: Any, o: Any) -> Any:
        inside = te.all(y >= top, y < conv.oh + top, z >= left, z < conv.ow + left)
        return te.if_then_else(inside, read(b, o, y - top, z - left), _float(0.0))

    return [
        _filtered(
            (conv.n, conv.h, conv.w, conv.k, conv.c),
            _within(framed, (conv.oh + 2 * top, conv.ow + 2 * left)),
            lambda o, i, r, s: filters(o, i, 2 - r, 2 - s),
            "dx",
        )
    ]


def _within(read: Read, size: tuple[int, int]) -> Read:
    """Reads zeros beyond the last row and column, which the last tiles of an odd-sized output need."""
    high, wide = size

    def value(b: Any, y: Any, z: Any, i: Any) -> Any:
        return te.if_then_else(te.all(y < high, z < wide), read(b, y, z, i), _float(0.0))

    return value


def _filtered(shape: tuple[int, int, int, int, int], image: Read, filters: Read, name: str) -> Any:
    """Returns the output [n, h, w, out] of a 3x3 filter; shape is (n, h, w, in, out)."""
    n, h, w, depth, width = shape
    rows, cols = -(-h // _TILE), -(-w // _TILE)
    rr, rs = te.reduce_axis((0, 3), "rr"), te.reduce_axis((0, 3), "rs")
    packed = te.compute(
        (_INPUTS, _INPUTS, depth, width),
        lambda e, f, i, o: te.sum(
            filters(i, o, rr, rs) * (_filter_factor(e, rr) * _filter_factor(f, rs)), axis=[rr, rs]
        ),
        name="filters_winograd",
    )

    def transformed(e: Any, f: Any, b: Any, p: Any, q: Any, i: Any) -> Any:
        (ya, yb, sign_y), (za, zb, sign_z) = _input_terms(e), _input_terms(f)
        y, z = p * _TILE, q * _TILE
        first = image(b, y + ya, z + za, i) + sign_z * image(b, y + ya, z + zb, i)
        second = image(b, y + yb, z + za, i) + sign_z * image(b, y + yb, z + zb, i)
        return first + sign_y * second

    tiles = te.compute((_INPUTS, _INPUTS, n, rows, cols, depth), transformed, name="image_winograd")
    rc = te.reduce_axis((0, depth), "rc")
    products = te.compute(
        (_INPUTS, _INPUTS, n, rows, cols, width),
        lambda e, f, b, p, q, o: te.sum(tiles[e, f, b, p, q, rc] * packed[e, f, rc, o], axis=rc),
        name="products",
    )
    ra, rb = te.reduce_axis((0, 3), "ra"), te.reduce_axis((0, 3), "rb")

    def output(b: Any, y: Any, z: Any, o: Any) -> Any:
        i, j = y % _TILE, z % _TILE
        product = products[i + ra, j + rb, b, y // _TILE, z // _TILE, o]
        return te.sum(product * (_output_sign(i, ra) * _output_sign(j, rb)), axis=[ra, rb])

    return te.compute((n, h, w, width), output, name=name)


def _input_terms(e: Any) -> tuple[Any, Any, Any]:
    """Returns the two inputs that row e of the input transform combines, and the sign of the second.

    The rows are d0 - d2, d1 + d2, d2 - d1 and d1 - d3.
    """
    first = tirx.Select(e == 0, 0, tirx.Select(e == 2, 2, 1))
    second = tirx.Select(e == 3, 3, tirx.Select(e == 2, 1, 2))
    return first, second, tirx.Select(e == 1, _float(1.0), _float(-1.0))


def _filter_factor(e: Any, r: Any) -> Any:
    """Returns entry (e, r) of the filter transform: rows g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2 and g2."""
    edge = tirx.Select(e == 0, 0, 2)
    at_edge = tirx.Select(r == edge, _float(1.0), _float(0.0))
    middle = tirx.Select(tirx.all(e == 2, r == 1), _float(-0.5), _float(0.5))
    return tirx.Select(tirx.any(e == 0, e == 3), at_edge, middle)


def _output_sign(i: Any, r: Any) -> Any:
    """Returns the sign of the r-th of the three products of output i: m0 + m1 + m2, and m1 - m2 - m3."""
    return tirx.Select(tirx.all(i == 1, r > 0), _float(-1.0), _float(1.0))


def _float(value: float) -> Any:
    return te.const(value, "float32")


def _product_pays(conv: Conv2d, size: tuple[int, int]) -> bool:
    """Returns whether a convolution has this form, and images of this size enough tiles to pay for transforms."""
    whole = conv.c % _VECTOR == 0 and conv.k % _VECTOR == 0
    tiles = conv.n * -(-size[0] // _TILE) * -(-size[1] // _TILE)
    return _pays(conv) and whole and tiles >= _FEWEST_TILES


def _forward_pays(conv: Conv2d) -> bool:
    return _product_pays(conv, (conv.oh, conv.ow))


def _data_grad_pays(conv: Conv2d) -> bool:
    return _product_pays(conv, (conv.h, conv.w))


def _transformed(matrix: Matrix, value: Read, extents: tuple[int, ...], name: str) -> Any:
    """Returns matrix x tile x matrix^T for each tile, as [element, *tile, channel].

    Args:
        matrix: The transform.
        value: Reads a tile at [row in the tile, column in the tile, *tile, channel].
        extents: Number of tiles along each axis, and of channels.
        name: Name of the result.
    """
    long, short = len(matrix), len(matrix[0])
    half = te.compute(
        (long, short, *extents),
        lambda e, b, *at: entry(matrix, e, lambda a: value(a, b, *at)),
        name=f"{name}_half",
    )
    return te.compute(
        (long * long, *extents),
        lambda g, *at: entry(matrix, g % long, lambda b: half[g // long, b, *at]),
        name=name,
        attrs={TRANSFORM: 1},
    )


def _windows(
    image: Any, first: tuple[int, int], shape: tuple[int, int, int], inputs: int
) -> tuple[Read, tuple[int, int, int]]:
    """Returns a reader of the windows of an image that its tiles need, and the number of tiles.

    The image [n, h, w, c] is copied with zeros around it.

    Args:
        image: The image.
        first: Its row and column at the first element of the first window.
        shape: Number of images, and height and width of the result that consists of tiles.
        inputs: Side of a window.

    Returns:
        A reader at [row in the window, column, row of tiles, column of tiles, channel], where the rows are those of
        all images; and the number of images, and of rows and columns of tiles in each.
    """
    n, high, wide = shape[0], -(-shape[1] // _TILE), -(-shape[2] // _TILE)
    beyond = inputs - _TILE
    _, h, w, c = map(int, image.shape)
    framed = (n, high * _TILE + beyond, wide * _TILE + beyond, c)

    def element(b: Any, y: Any, z: Any, i: Any) -> Any:
        y, z = y + first[0], z + first[1]
        return or_zero([y >= 0, y < h, z >= 0, z < w], image[b, y, z, i])

    copied = first != (0, 0) or framed[1:3] != (h, w)
    read = te.compute(framed, element, name=f"{image.op.name}_framed") if copied else image

    def value(a: Any, b: Any, row: Any, column: Any, i: Any) -> Any:
        return read[row // high, row % high * _TILE + a, column * _TILE + b, i]

    return value, (n, high, wide)


def _filtered_by_products(
    image: Any,
    first: tuple[int, int],
    shape: tuple[int, int, int, int],
    filters: Read,
    name: str,
) -> Tensors:
    """Returns an image, filtered.

    Args:
        image: The image.
        first: Its row and column under the first tap of the first result.
        shape: Shape of the result.
        filters: Reads taps at [row, column, channel of the image, channel of the result].
        name: Name of the result.
    """
    inputs, taps, outputs = matrices(_TILE, _TAPS)
    size, depth, width = len(inputs), int(image.shape[-1]), shape[-1]
    windows, (n, high, wide) = _windows(image, first, shape[:3], size)
    seen = _transformed(inputs, windows, (n * high, wide, depth), "image")
    weights = _transformed(taps, filters, (depth, width), "filters")
    step = te.reduce_axis((0, depth), "step")
    products = te.compute(
        (size * size, n * high, wide, width),
        lambda g, row, column, o: te.sum(
            seen[g, row, column, step] * weights[g, step, o], axis=step
        ),
        name="products",
        attrs={REGISTER_PRODUCT: TRANSFORMED, TRANSFORM: high},
    )
    half = te.compute(
        (_TILE, size, n * high, wide, width),
        lambda i, f, row, column, o: entry(
            outputs, i, lambda e: products[e * size + f, row, column, o]
        ),
        name=f"{name}_half",
    )
    return [
        te.compute(
            shape,
            lambda b, y, z, o: entry(
                outputs,
                z % _TILE,
                lambda f: half[y % _TILE, f, b * high + y // _TILE, z // _TILE, o],
            ),
            name=name,
            attrs={TRANSFORM: _TILE},
        )
    ]


@formulation(
    "conv2d", "forward", "winograd_product", rule="register_product", applies=_forward_pays
)
def forward_product(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y is x, filtered with the weight."""
    x, weight = inputs
    return _filtered_by_products(
        x,
        (-conv.pad[0], -conv.pad[1]),
        (conv.n, conv.oh, conv.ow, conv.k),
        lambda r, s, i, o: weight[r, s, i, o],
        "y",
    )


@formulation(
    "conv2d", "data_grad", "winograd_product", rule="register_product", applies=_data_grad_pays
)
def data_grad_product(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx is dy, filtered with the weight rotated by 180 degrees."""
    dy, weight = inputs
    last = _TAPS - 1
    turned = te.compute(
        (_TAPS, _TAPS, conv.k, conv.c),
        lambda r, s, o, i: weight[last - r, last - s, i, o],
        name="weight_rskc",
    )
    return _filtered_by_products(
        dy,
        (conv.pad[0] - last, conv.pad[1] - last),
        (conv.n, conv.h, conv.w, conv.c),
        lambda r, s, o, i: turned[r, s, o, i],
        "dx",
    )
