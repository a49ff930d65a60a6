"""Winograd's minimal filtering F(2x2, 3x3) for 3x3 convolutions at stride 1, forward and data gradient.

A tile of 2x2 outputs is computed from 4x4 inputs with 16 products instead of 36 (Lavin and Gray, CVPR 2016). With
channels last, the 16 products over all tiles and channels are 16 matrix products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.conv2d_forward import guarded
from autotune.compiler.formulations.layouts import filter_reader, reader
from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import Conv2d

_FEWEST_CHANNELS = 16
_TILE, _INPUTS = 2, 4
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
