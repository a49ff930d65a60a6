"""Accesses tensors of either layout as channels first, so that each formulation is written once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.registry import Attributes


def compute(
    op: Any,
    shape: tuple[int, ...],
    value: Callable[..., Any],
    name: str,
    attrs: Attributes = None,
) -> Any:
    """Defines a tensor [n, c, ...] in the operator's layout by ``value(b, i, ...)``, with channels first."""
    if not op.channels_last:
        return te.compute(shape, value, name=name, attrs=attrs)
    n, c, *size = shape

    def last(b: Any, *rest: Any) -> Any:
        *at, i = rest
        return value(b, i, *at)

    return te.compute((n, *size, c), last, name=name, attrs=attrs)


def compute_filters(
    op: Any, value: Callable[..., Any], name: str, outer: tuple[int, ...] = ()
) -> Any:
    """Defines a tensor of filters in the operator's layout by ``value(*outer, o, i, r, s)``."""
    per_group, depth = op.c // op.groups, len(outer)
    if not op.channels_last:
        return te.compute((*outer, op.k, per_group, op.r, op.s), value, name=name)

    def last(*index: Any) -> Any:
        r, s, i, o = index[depth:]
        return value(*index[:depth], o, i, r, s)

    return te.compute((*outer, op.r, op.s, per_group, op.k), last, name=name)


def reader(op: Any, tensor: Any) -> Callable[..., Any]:
    """Returns a reader of a tensor in the operator's layout; it takes indices [n, c, ...], channels first."""
    if not op.channels_last:
        return lambda b, i, *at: tensor[(b, i, *at)]
    return lambda b, i, *at: tensor[(b, *at, i)]


def framed(op: Any, x: Any, outside: Any) -> Callable[..., Any]:
    """Reads an image x[n, c, h, w], shifted by the operator's padding; returns ``outside`` beyond its border."""
    (ph, pw), read = op.pad, reader(op, x)

    def value(b: Any, i: Any, y: Any, z: Any) -> Any:
        inside = te.all(y >= ph, y < op.h + ph, z >= pw, z < op.w + pw)
        return te.if_then_else(inside, read(b, i, y - ph, z - pw), outside)

    return value


def filter_reader(op: Any, weight: Any) -> Callable[..., Any]:
    """Reads filters as [k, c, r, s]. With channels last, they are stored as [r, s, c, k]."""
    if not op.channels_last:
        return lambda o, i, r, s: weight[o, i, r, s]
    return lambda o, i, r, s: weight[r, s, i, o]


def from_last(op: Any, image: Any, name: str, channels: int | None = None) -> Any:
    """Returns an image [n, h, w, c] in the operator's layout: itself, or a copy.

    Args:
        op: The operator.
        image: The image.
        name: Name of a copy.
        channels: Number of channels to keep; None for all.
    """
    n, h, w, c = map(int, image.shape)
    kept = c if channels is None else channels
    if op.channels_last:
        if kept == c:
            return image
        return te.compute((n, h, w, kept), lambda *at: image[at], name=name)
    c = kept
    return te.compute((n, c, h, w), lambda b, i, y, z: image[b, y, z, i], name=name)


def rounded_up(extent: int, multiple: int) -> int:
    """Returns the smallest multiple that is not less."""
    return -(-extent // multiple) * multiple


def zeros_after(shape: Sequence[int], extent: int, element: Callable[..., Any], name: str) -> Any:
    """Returns a tensor whose last axis has zeros from an index on.

    Args:
        shape: Shape of the tensor.
        extent: The first index with zeros.
        element: Returns the element at an index.
        name: Name of the tensor.
    """
    if shape[-1] == extent:
        return te.compute(tuple(shape), element, name=name)
    return te.compute(
        tuple(shape),
        lambda *at: te.if_then_else(at[-1] < extent, element(*at), te.const(0.0, "float32")),
        name=name,
    )


def or_zero(inside: Sequence[Any], element: Any) -> Any:
    """Returns the element if all conditions hold (or there are none); otherwise zero."""
    if not inside:
        return element
    return te.if_then_else(tirx.all(*inside), element, te.const(0.0, "float32"))


def between(at: Any, before: int, last: int, size: int) -> list[Any]:
    """Returns the conditions under which an index is inside; empty if it always is."""
    return ([at >= 0] if before > 0 else []) + ([at < size] if last >= size else [])


def in_fours(extent: int) -> int:
    """Returns the extent, rounded up to a multiple of 4."""
    return rounded_up(extent, 4)


def under_windows(
    size: tuple[int, int], first: tuple[int, int], read: Callable[..., Any], shape: Sequence[int]
) -> Any:
    """Returns an image with zeros around it, shifted so that its row and column `first` become 0."""

    def value(*at: Any) -> Any:
        *plane, y, z = at
        y, z = y + first[0], z + first[1]
        return or_zero([y >= 0, y < size[0], z >= 0, z < size[1]], read(*plane, y, z))

    return te.compute(tuple(shape), value, name="seen")
