"""Power of NVIDIA's GPUs, as `nvidia-smi` prints it from NVML."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ROW = re.compile(r"\s*(\d+)\s*,\s*(.*)")


def query(*, instant: bool = True, interval_s: float | None = None) -> tuple[str, ...]:
    """Returns a command that prints a line for each GPU: number, present power (if `instant`), mean power.

    Args:
        instant: Whether to ask for `power.draw.instant`, which older drivers do not know. Since Ampere,
            `power.draw` is the mean of a second.
        interval_s: Seconds between prints, without end; None prints once.
    """
    fields = "index,power.draw.instant,power.draw" if instant else "index,power.draw"
    often = () if interval_s is None else ("-lms", str(max(1, round(1000 * interval_s))))
    return ("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", *often)


def rows(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Returns each GPU's number and the rest of its line. Other lines are left out."""
    return [(match[1], match[2]) for line in lines if (match := _ROW.fullmatch(line))]


def watts(text: str) -> float | None:
    """Returns the first number in a line; None if there is none. `[N/A]` is not a number."""
    for field in text.split(","):
        try:
            return float(field)
        except ValueError:
            continue
    return None
