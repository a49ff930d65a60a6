"""Two-dimensional convolution."""

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
class Conv2d(Operator):
    """Convolution (cross-correlation, as in PyTorch) without bias, float32.

    forward: ``x[n,c,h,w], weight[k,c/groups,r,s] -> y[n,k,oh,ow]``;
    data_grad: ``dy, weight -> dx``; weight_grad: ``x, dy -> dweight``.
    Channels last: ``x[n,h,w,c], weight[r,s,c/groups,k], y[n,oh,ow,k]``.

    Attributes:
        n: Batch.
        c: Input channels.
        h: Input height in pixels.
        w: Input width in pixels.
        k: Output channels.
        r: Kernel height.
        s: Kernel width.
        stride: Steps (vertical, horizontal).
        pad: Zero padding on each side (vertical, horizontal).
        dilation: Distance between taps (vertical, horizontal).
        groups: Groups of channels; ``groups == c`` is a depthwise convolution.
        channels_last: Layout of the operands.

    Raises:
        UsageError: On construction, if the shapes are impossible.
    """

    name: ClassVar[str] = "conv2d"

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: Pair
    pad: Pair
    dilation: Pair = (1, 1)
    groups: int = 1
    channels_last: bool = False

    @property
    def oh(self) -> int:
        """Output height in pixels."""
        return (self.h + 2 * self.pad[0] - self._extent(0)) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Output width in pixels."""
        return (self.w + 2 * self.pad[1] - self._extent(1)) // self.stride[1] + 1

    def roles(self) -> tuple[Role, ...]:
        """Returns all roles except ``update``."""
        return ("forward", "data_grad", "weight_grad")

    def label(self) -> str:
        """Returns a text such as ``n8c64h56w56k64r3s3_s1p1``; ``d`` and ``g`` follow if they are not 1."""
        shapes = f"n{self.n}c{self.c}h{self.h}w{self.w}k{self.k}r{self.r}s{self.s}"
        text = f"{shapes}_s{pair_text(self.stride)}p{pair_text(self.pad)}"
        if self.dilation != (1, 1):
            text += f"d{pair_text(self.dilation)}"
        text += f"g{self.groups}" if self.groups != 1 else ""
        return text + ("_nhwc" if self.channels_last else "")

    def _extent(self, axis: int) -> int:
        """Returns the number of pixels that the dilated kernel spans."""
        return ((self.r, self.s)[axis] - 1) * self.dilation[axis] + 1

    def _check_shapes(self) -> None:
        for channels in ("c", "k"):
            if getattr(self, channels) % self.groups:
                raise UsageError(
                    f"conv2d: groups={self.groups} does not divide "
                    f"{channels}={getattr(self, channels)}",
                    hint="choose groups that divides both c and k",
                )
        for axis, (size, kernel) in enumerate((("h", "r"), ("w", "s"))):
            padded = getattr(self, size) + 2 * self.pad[axis]
            if self._extent(axis) > padded:
                raise UsageError(
                    f"conv2d: the kernel ({kernel}={getattr(self, kernel)}, dilation "
                    f"{self.dilation[axis]}) spans {self._extent(axis)} pixels, more than the "
                    f"{padded} of the padded input ({size}={getattr(self, size)})",
                    hint=f"make {kernel} or dilation smaller, or {size} or pad larger",
                )

    def _signature(self, role: Role) -> Signature:
        x = in_layout(self.channels_last, self.n, self.c, self.h, self.w)
        y = in_layout(self.channels_last, self.n, self.k, self.oh, self.ow)
        weight = (self.k, self.c // self.groups, self.r, self.s)
        if self.channels_last:
            weight = (self.r, self.s, self.c // self.groups, self.k)
        if role == "forward":
            return Signature(
                (TensorSpec("x", x), TensorSpec("weight", weight)), (TensorSpec("y", y),)
            )
        if role == "data_grad":
            return Signature(
                (TensorSpec("dy", y), TensorSpec("weight", weight)), (TensorSpec("dx", x),)
            )
        return Signature(
            (TensorSpec("x", x), TensorSpec("dy", y)), (TensorSpec("dweight", weight),)
        )

    def _flops(self, role: Role) -> int:
        outputs = self.n * self.k * self.oh * self.ow
        return 2 * outputs * (self.c // self.groups) * self.r * self.s
