"""What a result says of a configuration, in words that tables and pages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def configuration_text(point: Mapping[str, Any]) -> str:
    """Cores and clocks of a point of a result, such as `4 big 2419 MHz`; of the system's own choice, in words."""
    clusters = point.get("clusters")
    if clusters is None:
        return "all cores, clocks free"
    return " + ".join(
        f"{c['cores']} {name}" + ("" if c["khz"] is None else f" {c['khz'] / 1000:.0f} MHz")
        for name, c in clusters.items()
        if c["cores"]
    )


def interval_text(ends: Sequence[float] | None) -> str:
    """The ends of an interval; empty for none."""
    return f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else ""
