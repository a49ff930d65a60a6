"""Index arithmetic of strided gradients."""

from __future__ import annotations

from typing import Any

from tvm import tirx


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
