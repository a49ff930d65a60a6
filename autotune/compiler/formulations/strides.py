"""Index arithmetic of strided gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autotune.compiler.formulations.layouts import between


def shifted(phase: Any, by: int, stride: int) -> Any:
    """(phase + by) % stride for a phase below the stride, by a comparison: TVM 0.27 goes wrong on sums of such."""
    by %= stride
    if by == 0:
        return phase
    return tirx.Select(phase < stride - by, phase + by, phase + (by - stride))


def carried(phase: Any, by: int, stride: int) -> Any:
    """(phase + by) // stride for a phase below the stride, likewise by a comparison."""
    whole, by = divmod(by, stride)
    if by == 0:
        return whole
    return tirx.Select(phase < stride - by, whole, whole + 1)


def divided(at: Any, by: int, stride: int) -> tuple[Any, Any]:
    """(at + by) // stride and (at + by) % stride without such a sum, in a form that dlight's rules take.

    On a GPU, where `at` is a part of a work-item's number, TVM 0.27 goes wrong on (at % 16 + 1) % 2.
    """
    whole, by = divmod(by, stride)
    phase = at % stride
    if by == 0:
        return at // stride + whole, phase
    carry = phase if stride == 2 else tirx.Cast("int32", phase >= stride - by)
    return at // stride + whole + carry, phase + by - stride * carry


@dataclass(frozen=True)
class PositionGrid:
    """One axis of an image, cut into positions of a stride's pixels, the phases; they share a window of dy.

    Attributes:
        shift: Pixels before the image that its first position has.
        positions: How many positions hold the image.
        first: The element of dy that the window of position 0 begins with.
        taps: Elements of dy in a window.
        stride: Phases of a position.
        tap_of_first: The filter's tap that phase 0 has for the first element of the window.
    """

    shift: int
    positions: int
    first: int
    taps: int
    stride: int
    tap_of_first: int

    @classmethod
    def of(cls, size: int, taps: int, stride: int, pad: int) -> PositionGrid:
        """The grid with the smallest windows: that of the image, or one that begins where a window of dy does."""

        def shifted_by(shift: int) -> PositionGrid:
            before = pad - shift
            first = -((taps - 1 - before) // stride)
            last = (stride - 1 + before) // stride
            positions, origin = -(-(size + shift) // stride), before - first * stride
            return cls(shift, positions, first, last - first + 1, stride, origin)

        return min((shifted_by(shift) for shift in (0, pad % stride)), key=lambda grid: grid.taps)

    def tap(self, phase: Any, e: Any) -> Any:
        """The filter's tap that a phase has for an element of the window; it may lie outside of the filter."""
        return phase + self.tap_of_first - e * self.stride

    def inside(self, at: Any, size: int) -> list[Any]:
        """What is to be asked so that an element of dy exists."""
        return between(at, -self.first, self.positions - 1 + self.first + self.taps - 1, size)

    @property
    def least_tap(self) -> int:
        """The first tap of any phase for any element of the window."""
        return self.tap_of_first - (self.taps - 1) * self.stride

    @property
    def most_tap(self) -> int:
        """The last one."""
        return self.tap_of_first + self.stride - 1
