"""Texts of times and rates, with three digits in the most readable unit."""

from __future__ import annotations

from collections.abc import Sequence


def time_text(seconds: float | None) -> str:
    """Returns a time with three digits in the most readable unit; `-` for None."""
    if seconds is None:
        return "-"
    scale, unit = _unit(seconds)
    return f"{_fixed(seconds * scale)} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    """Returns scale and name of the unit in which a time is below 1000, or of seconds if there is none."""
    for scale, unit in ((1e6, "us"), (1e3, "ms")):
        if float(f"{seconds * scale:.3g}") < 1000:
            return scale, unit
    return 1.0, "s"


def _fixed(value: float) -> str:
    """Returns three digits, without an exponent if possible."""
    value = float(f"{value:.3g}")
    if 0 < value < 0.1:
        return f"{value:.3g}"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def rate_text(value: float) -> str:
    """Returns a rate, such as samples per second, with three digits and without an exponent."""
    return _fixed(value)


def times_text(ends: Sequence[float] | None) -> str:
    """Returns an interval of seconds, in the unit of its upper end if both are readable in it; empty for None."""
    if not ends:
        return ""
    scale, unit = _unit(max(ends))
    if ends[0] * scale < 0.01 * min(1.0, ends[1] * scale):
        return f"{time_text(ends[0])} to {time_text(ends[1])}"
    return f"{_fixed(ends[0] * scale)} to {_fixed(ends[1] * scale)} {unit}"


__all__ = ["rate_text", "time_text", "times_text"]
