"""Index arithmetic of strided gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autotune.compiler.formulations.layouts import between


def shifted(phase: Any, by: int, stride: int) -> Any:
    """Returns (phase + by) % stride for a phase below the stride, by comparison: TVM 0.27 gets such sums wrong."""
    by %= stride
    if by == 0:
        return phase
    return tirx.Select(phase < stride - by, phase + by, phase + (by - stride))


def carried(phase: Any, by: int, stride: int) -> Any:
    """Returns (phase + by) // stride for a phase below the stride, also by a comparison."""
    whole, by = divmod(by, stride)
    if by == 0:
        return whole
    return tirx.Select(phase < stride - by, whole, whole + 1)


def divided(at: Any, by: int, stride: int) -> tuple[Any, Any]:
    """Returns (at + by) // stride and (at + by) % stride without such a sum, in a form that dlight's rules accept.

    On a GPU, where `at` is a part of a work-item's number, TVM 0.27 computes (at % 16 + 1) % 2 wrongly.
    """
    whole, by = divmod(by, stride)
    phase = at % stride
    if by == 0:
        return at // stride + whole, phase
    carry = phase if stride == 2 else tirx.Cast("int32", phase >= stride - by)
    return at // stride + whole + carry, phase + by - stride * carry


@dataclass(frozen=True)
class PositionGrid:
    """One axis of an image, split into positions of stride pixels (the phases), which share a window of dy.

    Attributes:
        shift: Number of pixels of the first position that lie before the image.
        positions: Number of positions that cover the image.
        first: Index in dy of the first element of position 0's window.
        taps: Elements of dy in a window.
        stride: Phases of a position.
        tap_of_first: The filter's tap with which phase 0 multiplies the first element of the window.
    """

    shift: int
    positions: int
    first: int
    taps: int
    stride: int
    tap_of_first: int

    @classmethod
    def of(cls, size: int, taps: int, stride: int, pad: int) -> PositionGrid:
        """Returns the grid with the smallest windows: it starts with the image, or with a window of dy."""

        def shifted_by(shift: int) -> PositionGrid:
            before = pad - shift
            first = -((taps - 1 - before) // stride)
            last = (stride - 1 + before) // stride
            positions, origin = -(-(size + shift) // stride), before - first * stride
            return cls(shift, positions, first, last - first + 1, stride, origin)

        return min((shifted_by(shift) for shift in (0, pad % stride)), key=lambda grid: grid.taps)

    def tap(self, phase: Any, e: Any) -> Any:
        """Returns the filter's tap of a phase for an element of the window; it may lie outside the filter."""
        return phase + self.tap_of_first - e * self.stride

    def inside(self, at: Any, size: int) -> list[Any]:
        """Returns the conditions under which an element of dy exists."""
        return between(at, -self.first, self.positions - 1 + self.first + self.taps - 1, size)

    @property
    def least_tap(self) -> int:
        """The lowest tap of any phase for any element of the window."""
        return self.tap_of_first - (self.taps - 1) * self.stride

    @property
    def most_tap(self) -> int:
        """The highest tap of any phase for any element of the window."""
        return self.tap_of_first + self.stride - 1


@dataclass(frozen=True)
class Phases:
    """One axis of an image, by the remainder of a pixel's index by the stride.

    Pixel y = stride * position + remainder has the taps phase, phase + stride and so on, where phase is
    (remainder + pad) modulo the stride. Pixels whose phase is no tap are zeros. Unlike in a `PositionGrid`, each
    phase has a window of its own, so no phase has a position outside the image if the stride divides that.

    Attributes:
        stride, pad: Those of the convolution.
        count: Phases that have a tap.
        positions: Pixels of a phase.
        taps: Most taps of a phase. Some phases may have one less.
    """

    stride: int
    pad: int
    count: int
    positions: int
    taps: int

    @classmethod
    def of(cls, size: int, taps: int, stride: int, pad: int) -> Phases:
        return cls(stride, pad, min(taps, stride), -(-size // stride), -(-taps // stride))

    def window(self, phase: Any) -> Any:
        """Returns the index in dy of the first element of position 0's window; it may be negative."""
        return self.carry(phase) - (self.taps - 1)

    def carry(self, phase: Any) -> Any:
        """Returns (remainder + pad) // stride of the pixels of a phase."""
        remainder = shifted(phase, -self.pad, self.stride)
        return carried(remainder, self.pad, self.stride)

    def carries(self) -> list[int]:
        """Returns the same of all phases."""
        found = [(phase - self.pad) % self.stride for phase in range(self.count)]
        return [(remainder + self.pad) // self.stride for remainder in found]

    @property
    def before(self) -> int:
        """Zeros that are needed before dy."""
        return max(0, self.taps - 1 - min(self.carries()))

    def padded(self, size: int) -> int:
        """Returns the size of dy with the zeros around it."""
        return max(size, self.positions + max(self.carries())) + self.before

    def phase(self, at: Any) -> tuple[Any, Any]:
        """Returns the phase and the position of a pixel."""
        return shifted(at % self.stride, self.pad, self.stride), at // self.stride
