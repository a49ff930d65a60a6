"""Pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.errors import UsageError
from autotune.workloads.operators.base import (
    Operator,
    Pair,
    Role,
    Signature,
    TensorSpec,
    in_layout,
    pair_text,
)


@dataclass(frozen=True)
class MaxPool2d(Operator):
    """Max pooling with PyTorch's semantics, float32.

    forward: ``x[n,c,h,w] -> y[n,c,oh,ow], index[n,c,oh,ow]`` (int32), where
    ``index = r_offset * s + s_offset`` of the first maximum of the window in row-major order;
    padding never wins. data_grad: ``dy, index -> dx``, summing where windows overlap.
    Channels last: ``x[n,h,w,c], y[n,oh,ow,c], index[n,oh,ow,c]``.

    Attributes:
        n: Batch.
        c: Channels.
        h: Input height in pixels.
        w: Input width in pixels.
        r: Window height.
        s: Window width.
        stride: Steps (vertical, horizontal).
        pad: Padding on each side (vertical, horizontal), at most half the window.
        ceil: Round the output size up, as PyTorch's ``ceil_mode``. The last window may extend past the padded
            input, but it starts inside the input or the left padding.
        channels_last: Layout of the operands.

    Raises:
        UsageError: On construction, if the shapes are impossible.
    """

    name: ClassVar[str] = "max_pool2d"

    n: int
    c: int
    h: int
    w: int
    r: int
    s: int
    stride: Pair
    pad: Pair
    ceil: bool
    channels_last: bool = False

    @property
    def oh(self) -> int:
        """Output height in pixels."""
        return self._windows(self.h, self.r, self.stride[0], self.pad[0])

    @property
    def ow(self) -> int:
        """Output width in pixels."""
        return self._windows(self.w, self.s, self.stride[1], self.pad[1])

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c64h111w111r3s3_s2p0_ceil``."""
        shapes = f"n{self.n}c{self.c}h{self.h}w{self.w}r{self.r}s{self.s}"
        window = f"s{pair_text(self.stride)}p{pair_text(self.pad)}"
        ceil, layout = "_ceil" if self.ceil else "", "_nhwc" if self.channels_last else ""
        return f"{shapes}_{window}{ceil}{layout}"

    def _windows(self, size: int, window: int, stride: int, pad: int) -> int:
        span = size + 2 * pad - window
        if not self.ceil:
            return span // stride + 1
        count = -(-span // stride) + 1
        return count - 1 if (count - 1) * stride >= size + pad else count

    def _check_shapes(self) -> None:
        _check_window(self)

    def _signature(self, role: Role) -> Signature:
        x = in_layout(self.channels_last, self.n, self.c, self.h, self.w)
        y = in_layout(self.channels_last, self.n, self.c, self.oh, self.ow)
        index = TensorSpec("index", y, "int32")
        if role == "forward":
            return Signature((TensorSpec("x", x),), (TensorSpec("y", y), index))
        return Signature((TensorSpec("dy", y), index), (TensorSpec("dx", x),))

    def _flops(self, role: Role) -> int:
        outputs = self.n * self.c * self.oh * self.ow
        return outputs * self.r * self.s if role == "forward" else outputs


@dataclass(frozen=True)
class AvgPool2d(Operator):
    """Average pooling, float32. Padding counts as zeros, as with PyTorch's ``count_include_pad``.

    forward: ``x[n,c,h,w] -> y[n,c,oh,ow]``; data_grad: ``dy -> dx``, summing where windows overlap.

    Attributes:
        n: Batch.
        c: Channels.
        h: Input height in pixels.
        w: Input width in pixels.
        r: Window height.
        s: Window width.
        stride: Steps (vertical, horizontal).
        pad: Padding on each side (vertical, horizontal), at most half the window.
        channels_last: Layout of the operands.

    Raises:
        UsageError: On construction, if the shapes are impossible.
    """

    name: ClassVar[str] = "avg_pool2d"

    n: int
    c: int
    h: int
    w: int
    r: int
    s: int
    stride: Pair
    pad: Pair
    channels_last: bool = False

    @property
    def oh(self) -> int:
        """Output height in pixels."""
        return (self.h + 2 * self.pad[0] - self.r) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Output width in pixels."""
        return (self.w + 2 * self.pad[1] - self.s) // self.stride[1] + 1

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c64h14w14r2s2_s2p0``."""
        shapes = f"n{self.n}c{self.c}h{self.h}w{self.w}r{self.r}s{self.s}"
        layout = "_nhwc" if self.channels_last else ""
        return f"{shapes}_s{pair_text(self.stride)}p{pair_text(self.pad)}{layout}"

    def _check_shapes(self) -> None:
        _check_window(self)

    def _signature(self, role: Role) -> Signature:
        x = in_layout(self.channels_last, self.n, self.c, self.h, self.w)
        y = in_layout(self.channels_last, self.n, self.c, self.oh, self.ow)
        if role == "forward":
            return Signature((TensorSpec("x", x),), (TensorSpec("y", y),))
        return Signature((TensorSpec("dy", y),), (TensorSpec("dx", x),))

    def _flops(self, role: Role) -> int:
        # r * s - 1 additions and a division for each mean; backward: a division, then additions.
        return self.n * self.c * self.oh * self.ow * self.r * self.s


@dataclass(frozen=True)
class GlobalAvgPool(Operator):
    """Mean over all pixels, float32.

    forward: ``x[n,c,s] -> y[n,c]``; data_grad: ``dy[n,c] -> dx[n,c,s]``. Channels last: ``x[n,s,c]``.

    Attributes:
        n: Batch.
        c: Channels.
        s: Pixels, height times width.
        channels_last: Layout of the operands.

    Raises:
        UsageError: On construction, if a size is below 1.
    """

    name: ClassVar[str] = "global_avg_pool"

    n: int
    c: int
    s: int
    channels_last: bool = False

    def roles(self) -> tuple[Role, ...]:
        """Returns ``forward`` and ``data_grad``."""
        return ("forward", "data_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c10s169``."""
        return f"n{self.n}c{self.c}s{self.s}{'_nhwc' if self.channels_last else ''}"

    def _signature(self, role: Role) -> Signature:
        wide, narrow = in_layout(self.channels_last, self.n, self.c, self.s), (self.n, self.c)
        if role == "forward":
            return Signature((TensorSpec("x", wide),), (TensorSpec("y", narrow),))
        return Signature((TensorSpec("dy", narrow),), (TensorSpec("dx", wide),))

    def _flops(self, role: Role) -> int:
        # Forward: s - 1 additions and a division for each mean; backward: one division each.
        return self.n * self.c * (self.s if role == "forward" else 1)


def _check_window(pool: MaxPool2d | AvgPool2d) -> None:
    for axis, (size, window) in enumerate((("h", "r"), ("w", "s"))):
        length, extent, pad = getattr(pool, size), getattr(pool, window), pool.pad[axis]
        if 2 * pad > extent:
            raise UsageError(
                f"{pool.name}: pad={pad} is more than half of the window {window}={extent}",
                hint=f"use a pad of at most {extent // 2}",
            )
        if extent > length + 2 * pad:
            raise UsageError(
                f"{pool.name}: the window {window}={extent} is larger than the "
                f"{length + 2 * pad} pixels of the padded input ({size}={length})",
                hint=f"make {window} smaller, or {size} or pad larger",
            )
