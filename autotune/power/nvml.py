"""NVIDIA's GPUs, as `nvidia-smi` prints their power from NVML."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ROW = re.compile(r"\s*(\d+)\s*,\s*(.*)")


def query(*, instant: bool = True, interval_s: float | None = None) -> tuple[str, ...]:
    """The command that prints a line a GPU: its number, its power now (where `instant`), and its mean power.

    Args:
        instant: Whether to ask for `power.draw.instant`, which older drivers do not know; since Ampere
            `power.draw` is the mean of a second.
        interval_s: Print for ever, so often; None prints once.
    """
    fields = "index,power.draw.instant,power.draw" if instant else "index,power.draw"
    often = () if interval_s is None else ("-lms", str(max(1, round(1000 * interval_s))))
    return ("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", *often)


def rows(lines: Sequence[str]) -> list[tuple[str, str]]:
    """A GPU's number, and what the line says of it; other lines are left out."""
    return [(match[1], match[2]) for line in lines if (match := _ROW.fullmatch(line))]


def watts(text: str) -> float | None:
    """The first figure of a line that is one, `[N/A]` is none; None where there is none."""
    for field in text.split(","):
        try:
            return float(field)
        except ValueError:
            continue
    return None
