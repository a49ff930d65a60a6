"""Convolutions and matmuls as one matrix product each, for the rule `implicit_gemm`.

Each operand is a separate stage that gathers elements in the order of the product, with zeros around them
(Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014). The rule computes it tile by tile, so it
is never in memory as a whole. All axes are padded to lengths that tiles divide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te

from autotune.compiler.formulations.layouts import (
    between,
    compute,
    compute_filters,
    filter_reader,
    or_zero,
    reader,
    rounded_up,
)
from autotune.compiler.formulations.registry import PRODUCT, Tensors, formulation
from autotune.compiler.formulations.strides import PositionGrid, carried, shifted
from autotune.workloads.operators import Conv2d, Matmul

RULE = "implicit_gemm"
_LEAST = 4
DEPTH = ((1024, 16, 1 / 16), (8, 8, 1 / 5))
EXTENT = ((128, 16, 1 / 16), (24, 24, 1 / 16), (32, 16, 1 / 10), (8, 8, 1 / 5))
"""Sizes to divide an axis, as (largest, smallest, share of zeros that padding may add). Sizes go down by halves."""

Read = Callable[[Any, Any, Any], Any]
"""Returns the element of an operand at (batch, position, index in the reduction), all within their extents."""


@dataclass(frozen=True)
class Operand:
    """One side of a product.

    Attributes:
        extent: Number of rows (first operand) or columns (second operand).
        read: Returns its elements.
        along_depth: Whether the reduction is contiguous in memory; otherwise the extent is.
        inside: Returns conditions under which an element within both extents exists. Otherwise the element is zero.
    """

    extent: int
    read: Read
    along_depth: bool
    inside: Callable[[Any, Any, Any], list[Any]] = lambda g, i, k: []


def padded(extent: int, sizes: Sequence[tuple[int, int, float]]) -> int:
    """Returns the extent, padded so that large tiles divide it, unless the padding adds too much work.

    Args:
        extent: At least 1.
        sizes: `DEPTH` or `EXTENT`.

    Returns:
        A multiple of the first size whose padding is within its allowed share; otherwise a multiple of 4.
    """
    for size, least, waste in sizes:
        while size >= least:
            longer = rounded_up(extent, size)
            if longer - extent <= waste * extent:
                return longer
            size //= 2
    return rounded_up(extent, _LEAST)


def matrix_product(
    a: Operand, b: Operand, depth: int, *, batch: int = 1, transformed: bool = False
) -> Callable[..., Any]:
    """Returns a function that reads the product of the rows of a and the columns of b at (batch, row, column)."""
    long = padded(depth, DEPTH)

    def gathered(side: Operand, name: str) -> Any:
        wide = padded(side.extent, EXTENT)

        def value(g: Any, k: Any, i: Any) -> Any:
            inside = side.inside(g, i, k)
            inside += [i < side.extent] if wide > side.extent else []
            inside += [k < depth] if long > depth else []
            element = side.read(g, i, k)
            return or_zero(inside, element)

        return te.compute((batch, long, wide), value, name=name)

    rows, columns = gathered(a, "rows"), gathered(b, "columns")
    rk = te.reduce_axis((0, long), "rk")
    product = te.compute(
        (batch, rows.shape[2], columns.shape[2]),
        lambda g, i, j: te.sum(rows[g, rk, i] * columns[g, rk, j], axis=rk),
        name="product",
        attrs={PRODUCT: [int(a.along_depth), int(b.along_depth), *[1] * transformed]},
    )
    return lambda g, i, j: product[g, i, j]


def _dense(conv: Conv2d) -> bool:
    return conv.groups == 1


def _of_image(
    conv: Conv2d, channels: Operand, pixels: Operand, depth: int, *, batch: int = 1
) -> Callable[..., Any]:
    """Returns the product that makes an image, read as (batch, channel, pixel). Its columns are contiguous."""
    if conv.channels_last:
        product = matrix_product(pixels, channels, depth, batch=batch)
        return lambda g, i, p: product(g, p, i)
    return matrix_product(channels, pixels, depth, batch=batch)


def _taps(conv: Conv2d, channels: int, size: tuple[int, int], k: Any) -> tuple[Any, Any, Any]:
    """Returns channel and tap at index k of a reduction over channels and a window, in the layout's order."""
    high, wide = size
    if conv.channels_last:
        return k % channels, k // channels // wide, k // channels % wide
    return k // (high * wide), k // wide % high, k % wide


def _window(conv: Conv2d, x: Any) -> tuple[Callable[..., Any], Callable[..., list[Any]]]:
    """Returns two functions: one reads x at (pixel of y, channel, tap), the other tests if it is in the image."""
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    read, area = reader(conv, x), conv.oh * conv.ow

    def at(p: Any, r: Any, s: Any) -> tuple[Any, Any]:
        return (p % area // conv.ow) * sh + r * dh - ph, (p % conv.ow) * sw + s * dw - pw

    def value(p: Any, i: Any, r: Any, s: Any) -> Any:
        return read(p // area, i, *at(p, r, s))

    def inside(p: Any, r: Any, s: Any) -> list[Any]:
        y, z = at(p, r, s)
        return between(y, ph, (conv.oh - 1) * sh + (conv.r - 1) * dh - ph, conv.h) + between(
            z, pw, (conv.ow - 1) * sw + (conv.s - 1) * dw - pw, conv.w
        )

    return value, inside


@formulation("conv2d", "forward", "gemm", rule=RULE, applies=_dense)
def forward(conv: Conv2d, inputs: Tensors) -> Tensors:
    """y[k, pixel] = weight[k, (c, r, s)] x x[(c, r, s), pixel]."""
    x, weight = inputs
    filters, (image, inside) = filter_reader(conv, weight), _window(conv, x)

    def taps(k: Any) -> tuple[Any, Any, Any]:
        return _taps(conv, conv.c, (conv.r, conv.s), k)

    def pixel(g: Any, p: Any, k: Any) -> Any:
        i, r, s = taps(k)
        return image(p, i, r, s)

    def framed(g: Any, p: Any, k: Any) -> list[Any]:
        _, r, s = taps(k)
        return inside(p, r, s)

    last = conv.channels_last
    product = _of_image(
        conv,
        Operand(conv.k, lambda g, o, k: filters(o, *taps(k)), along_depth=not last),
        Operand(conv.n * conv.oh * conv.ow, pixel, along_depth=last, inside=framed),
        conv.c * conv.r * conv.s,
    )

    def value(b: Any, o: Any, i: Any, j: Any) -> Any:
        return product(0, o, (b * conv.oh + i) * conv.ow + j)

    return [compute(conv, (conv.n, conv.k, conv.oh, conv.ow), value, "y")]


def _phased(conv: Conv2d) -> bool:
    return conv.groups == 1 and (conv.stride == (1, 1) or conv.dilation == (1, 1))


@formulation("conv2d", "data_grad", "gemm", rule=RULE, applies=_phased)
def data_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx[c, pixel] = weight[c, (k, r, s)] x dy[(k, r, s), pixel], one product for each phase of the stride.

    A phase is the set of pixels with the same offset modulo the stride. It uses every stride-th tap.
    """
    dy, weight = inputs
    (sh, sw), (ph, pw), (dh, dw) = conv.stride, conv.pad, conv.dilation
    filters, gradient = filter_reader(conv, weight), reader(conv, dy)
    high, wide = -(-conv.h // sh), -(-conv.w // sw)
    size = th, tw = -(-conv.r // sh), -(-conv.s // sw)

    def tap(g: Any, k: Any) -> tuple[Any, Any, Any]:
        """Returns the output channel and the tap, which may lie beyond the filter's end."""
        o, t, u = _taps(conv, conv.k, size, k)
        if conv.stride == (1, 1):
            return o, t, u
        return o, shifted(g // sw, ph, sh) + t * sh, shifted(g % sw, pw, sw) + u * sw

    def at(g: Any, p: Any, k: Any) -> tuple[Any, Any, Any, Any]:
        o, t, u = _taps(conv, conv.k, size, k)
        y, z = p % (high * wide) // wide, p % wide
        if conv.stride == (1, 1):
            return p // (high * wide), o, y + ph - t * dh, z + pw - u * dw
        return (
            p // (high * wide),
            o,
            y + carried(g // sw, ph, sh) - t,
            z + carried(g % sw, pw, sw) - u,
        )

    def weights(g: Any, i: Any, k: Any) -> Any:
        o, r, s = tap(g, k)
        return filters(o, i, r, s)

    def exists(g: Any, i: Any, k: Any) -> list[Any]:
        _, r, s = tap(g, k)
        return ([r < conv.r] if th * sh > conv.r else []) + (
            [s < conv.s] if tw * sw > conv.s else []
        )

    def inside(g: Any, p: Any, k: Any) -> list[Any]:
        _, _, y, z = at(g, p, k)
        if conv.stride == (1, 1):
            first = ph - (conv.r - 1) * dh, pw - (conv.s - 1) * dw
            last = conv.h - 1 + ph, conv.w - 1 + pw
        else:
            first = ph // sh - (th - 1), pw // sw - (tw - 1)
            last = high - 1 + (sh - 1 + ph) // sh, wide - 1 + (sw - 1 + pw) // sw
        return between(y, -first[0], last[0], conv.oh) + between(z, -first[1], last[1], conv.ow)

    channels_last = conv.channels_last
    product = _of_image(
        conv,
        Operand(conv.c, weights, along_depth=True, inside=exists),
        Operand(
            conv.n * high * wide,
            lambda g, p, k: gradient(*at(g, p, k)),
            along_depth=channels_last,
            inside=inside,
        ),
        conv.k * th * tw,
        batch=sh * sw,
    )

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        if conv.stride == (1, 1):
            return product(0, i, (b * high + y) * wide + z)
        phase = y % sh * sw + z % sw
        return product(phase, i, (b * high + y // sh) * wide + z // sw)

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]


def _strided(conv: Conv2d) -> bool:
    return _phased(conv) and conv.stride != (1, 1)


@formulation("conv2d", "data_grad", "gemm_phases", rule=RULE, applies=_strided)
def data_grad_by_phases(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dx[(c, phase), position] = weight[(c, phase), (k, e, f)] x dy[(k, e, f), position], one product.

    A position is stride x stride pixels: the phases. All phases use the same window of dy, some with zero weights.
    So an image with few channels is still a product with many rows.
    """
    dy, weight = inputs
    sh, sw = conv.stride
    down = PositionGrid.of(conv.h, conv.r, sh, conv.pad[0])
    across = PositionGrid.of(conv.w, conv.s, sw, conv.pad[1])
    high, wide = down.positions, across.positions
    filters, gradient = filter_reader(conv, weight), reader(conv, dy)

    def tap(i: Any, k: Any) -> tuple[Any, Any, Any]:
        """Returns the output channel and the tap, which may lie outside the filter."""
        o, e, f = _taps(conv, conv.k, (down.taps, across.taps), k)
        return o, down.tap(i // sw % sh, e), across.tap(i % sw, f)

    def weights(g: Any, i: Any, k: Any) -> Any:
        o, r, s = tap(i, k)
        return filters(o, i // (sh * sw), r, s)

    def exists(g: Any, i: Any, k: Any) -> list[Any]:
        _, r, s = tap(i, k)
        return [r >= 0, r < conv.r, s >= 0, s < conv.s]

    def at(p: Any, k: Any) -> tuple[Any, Any, Any, Any]:
        o, e, f = _taps(conv, conv.k, (down.taps, across.taps), k)
        y, z = p % (high * wide) // wide, p % wide
        return p // (high * wide), o, y + e + down.first, z + f + across.first

    def inside(g: Any, p: Any, k: Any) -> list[Any]:
        _, _, y, z = at(p, k)
        return down.inside(y, conv.oh) + across.inside(z, conv.ow)

    product = _of_image(
        conv,
        Operand(conv.c * sh * sw, weights, along_depth=True, inside=exists),
        Operand(
            conv.n * high * wide,
            lambda g, p, k: gradient(*at(p, k)),
            along_depth=conv.channels_last,
            inside=inside,
        ),
        conv.k * down.taps * across.taps,
    )

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        v, u = y + down.shift, z + across.shift
        row = (i * sh + v % sh) * sw + u % sw
        return product(0, row, (b * high + v // sh) * wide + u // sw)

    return [compute(conv, (conv.n, conv.c, conv.h, conv.w), value, "dx")]


@formulation("conv2d", "weight_grad", "gemm", rule=RULE, applies=_dense)
def weight_grad(conv: Conv2d, inputs: Tensors) -> Tensors:
    """dweight[k, (c, r, s)] = dy[k, pixel] x x[pixel, (c, r, s)]."""
    x, dy = inputs
    image, inside = _window(conv, x)
    gradient, area, last = reader(conv, dy), conv.oh * conv.ow, conv.channels_last

    def taps(j: Any) -> tuple[Any, Any, Any]:
        return _taps(conv, conv.c, (conv.r, conv.s), j)

    def pixel(g: Any, j: Any, p: Any) -> Any:
        i, r, s = taps(j)
        return image(p, i, r, s)

    def framed(g: Any, j: Any, p: Any) -> list[Any]:
        _, r, s = taps(j)
        return inside(p, r, s)

    under = Operand(conv.c * conv.r * conv.s, pixel, along_depth=not last, inside=framed)
    out = Operand(
        conv.k,
        lambda g, o, p: gradient(p // area, o, p % area // conv.ow, p % conv.ow),
        along_depth=not last,
    )
    sides = (under, out) if last else (out, under)
    product = matrix_product(*sides, conv.n * area)

    def value(o: Any, i: Any, r: Any, s: Any) -> Any:
        if last:
            return product(0, (r * conv.s + s) * conv.c + i, o)
        return product(0, o, (i * conv.r + r) * conv.s + s)

    return [compute_filters(conv, value, "dweight")]


def _matrices(a: Operand, b: Operand, depth: int, name: str) -> Tensors:
    product = matrix_product(a, b, depth)
    return [te.compute((a.extent, b.extent), lambda i, j: product(0, i, j), name=name)]


@formulation("matmul", "forward", "gemm", rule=RULE)
def matmul_forward(mm: Matmul, inputs: Tensors) -> Tensors:
    x, weight = inputs
    return _matrices(
        Operand(mm.m, lambda g, i, k: x[i, k], along_depth=True),
        Operand(mm.n, lambda g, j, k: weight[j, k], along_depth=True),
        mm.k,
        "y",
    )


@formulation("matmul", "data_grad", "gemm", rule=RULE)
def matmul_data_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    dy, weight = inputs
    return _matrices(
        Operand(mm.m, lambda g, i, k: dy[i, k], along_depth=True),
        Operand(mm.k, lambda g, j, k: weight[k, j], along_depth=False),
        mm.n,
        "dx",
    )


@formulation("matmul", "weight_grad", "gemm", rule=RULE)
def matmul_weight_grad(mm: Matmul, inputs: Tensors) -> Tensors:
    x, dy = inputs
    return _matrices(
        Operand(mm.n, lambda g, i, k: dy[k, i], along_depth=False),
        Operand(mm.k, lambda g, j, k: x[k, j], along_depth=False),
        mm.m,
        "dweight",
    )
