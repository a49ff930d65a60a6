"""Convolutions of one axis, transposed ones, and padding that differs by side, as convolutions of two axes.

A transposed convolution is the data gradient of a convolution: its forward pass is that kernel, and its own data
gradient is the forward pass. So these spellings need no kernels of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from autotune.errors import UsageError
from autotune.workloads.operators.base import Pair, Role
from autotune.workloads.operators.convolution import Conv2d

Sides = tuple[int, int, int, int]
"""Padding above, to the left, below and to the right."""
_SWAPPED: Mapping[Role, Role] = MappingProxyType({"forward": "data_grad", "data_grad": "forward"})
"""Roles of a transposed convolution as those of the convolution."""


class Spelling(Protocol):
    """Another way to write an operator."""

    name: ClassVar[str]

    def operator(self) -> Conv2d:
        """Returns the operator.

        Raises:
            UsageError: The shapes are impossible.
        """

    def role(self, role: Role) -> Role:
        """Returns the operator's role that computes this one's."""


@dataclass(frozen=True)
class Conv1d:
    """``conv1d``: a convolution over ``l`` positions with ``r`` taps."""

    name: ClassVar[str] = "conv1d"

    n: int
    c: int
    l: int  # noqa: E741  # as PyTorch names it
    k: int
    r: int
    stride: int
    pad: int
    dilation: int = 1
    groups: int = 1
    channels_last: bool = False

    def operator(self) -> Conv2d:
        """See `Spelling`."""
        return Conv2d(
            self.n, self.c, 1, self.l, self.k, 1, self.r, (1, self.stride), (0, self.pad), (1, self.dilation),
            self.groups, self.channels_last,
        )  # fmt: skip

    def role(self, role: Role) -> Role:
        """See `Spelling`."""
        return role


@dataclass(frozen=True)
class PaddedBySides:
    """``conv2d`` with a padding for each side; the pixels that only one side has belong to the image.

    Attributes:
        fields: The convolution's fields; its ``pad`` does not count.
        sides: The padding.
    """

    name: ClassVar[str] = "conv2d"

    fields: Mapping[str, Any]
    sides: Sides

    def operator(self) -> Conv2d:
        """See `Spelling`."""
        top, left, bottom, right = self.sides
        high, wide = min(top, bottom), min(left, right)
        sizes = {
            "h": self.fields["h"] + top + bottom - 2 * high,
            "w": self.fields["w"] + left + right - 2 * wide,
        }
        return Conv2d(**{**self.fields, **sizes, "pad": (high, wide)})

    def role(self, role: Role) -> Role:
        """See `Spelling`."""
        return role


@dataclass(frozen=True)
class ConvTranspose2d:
    """``conv2d_transpose``: ``c`` channels of ``h`` x ``w`` pixels to ``k`` channels, as ``nn.ConvTranspose2d``."""

    name: ClassVar[str] = "conv2d_transpose"

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: Pair
    pad: Pair
    output_pad: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    channels_last: bool = False

    def operator(self) -> Conv2d:
        """See `Spelling`."""
        sizes = []
        for axis, (size, taps) in enumerate(((self.h, self.r), (self.w, self.s))):
            more, stride = self.output_pad[axis], self.stride[axis]
            if not 0 <= more < max(stride, self.dilation[axis]):
                raise UsageError(
                    f"{self.name}: output_pad={more} is not below the stride or the dilation",
                    hint=f"output_pad adds rows or columns that a stride of {stride} leaves open",
                )
            spans = (taps - 1) * self.dilation[axis] + 1
            sizes.append((size - 1) * stride - 2 * self.pad[axis] + spans + more)
        high, wide = sizes
        return Conv2d(
            self.n, self.k, high, wide, self.c, self.r, self.s, self.stride, self.pad, self.dilation, self.groups,
            self.channels_last,
        )  # fmt: skip

    def role(self, role: Role) -> Role:
        """See `Spelling`."""
        return _SWAPPED.get(role, role)


@dataclass(frozen=True)
class ConvTranspose1d(Conv1d):
    """``conv1d_transpose``: as ``conv2d_transpose``, along one axis."""

    name: ClassVar[str] = "conv1d_transpose"

    output_pad: int = 0

    def operator(self) -> Conv2d:
        """See `Spelling`."""
        flat = ConvTranspose2d(
            self.n, self.c, 1, self.l, self.k, 1, self.r, (1, self.stride), (0, self.pad), (0, self.output_pad),
            (1, self.dilation), self.groups, self.channels_last,
        )  # fmt: skip
        return flat.operator()

    def role(self, role: Role) -> Role:
        """See `Spelling`."""
        return _SWAPPED.get(role, role)


SPELLINGS: Mapping[str, type[Conv1d | ConvTranspose1d | ConvTranspose2d]] = MappingProxyType(
    {one.name: one for one in (Conv1d, ConvTranspose1d, ConvTranspose2d)}
)
"""Other spellings by name."""
