"""Values of options: numbers, quantities with units, words, and paths that stay valid in any working directory."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from autotune.errors import UsageError, choices
from autotune.studies.run import JOURNAL_PREFIX
from autotune.studies.space import Limits

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_COLDEST, _HOTTEST = -50, 150
_Word = TypeVar("_Word", bound=str)


def finite(option: str, value: float | None, least: float = -math.inf) -> None:
    """Refuses an option that is not a finite number or is below the least value.

    Raises:
        UsageError: The value is refused.
    """
    if value is not None and not (math.isfinite(value) and value >= least):
        wanted = "a finite number" if math.isinf(least) else f"a number from {least:g} on"
        raise UsageError(f"{option} is {value:g}", hint=f"give {wanted}")


def celsius(option: str, value: float | None) -> None:
    """Refuses a temperature that no device that works can have.

    Raises:
        UsageError: The value is refused.
    """
    if value is not None and not _COLDEST <= value <= _HOTTEST:
        raise UsageError(
            f"{option} is {value:g}", hint=f"give degrees Celsius from {_COLDEST} to {_HOTTEST}"
        )


def one_of(option: str, value: str, known: Sequence[_Word]) -> _Word:
    """Returns the known word that an option gives.

    Raises:
        UsageError: The value is not one of the known words.
    """
    for word in known:
        if word == value:
            return word
    raise UsageError(f"{option} '{value}' is not known", hint=choices(value, known))


def limits(
    deadline: str | None, energy: str | None, temperature: float | None, memory: str | None
) -> Limits:
    """Returns the limits given on the command line.

    Raises:
        UsageError: A value is not a quantity.
    """
    finite("--max-temperature", temperature)
    return Limits(
        time_s=_quantity("--deadline", deadline, {"s": 1.0, "us": 1e-6, "ms": 1e-3, "min": 60.0}),
        energy_j=_quantity(
            "--energy-budget", energy, {"J": 1.0, "uJ": 1e-6, "mJ": 1e-3, "kJ": 1e3}
        ),
        celsius=temperature,
        memory_bytes=None if memory is None else parse_size(memory),
    )


def _quantity(option: str, text: str | None, units: dict[str, float]) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*([0-9.]+(?:e-?\d+)?)\s*([A-Za-z]*)\s*", text)
    try:
        value = float(match[1]) * units[match[2] or next(iter(units))] if match else 0.0
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < math.inf:
        raise UsageError(
            f"{option} '{text}' is not a quantity", hint=f"a number and one of {', '.join(units)}"
        )
    return value


def parse_size(text: str) -> int:
    """Reads a size such as 1GB, 512MiB or 300000; K, M and G are powers of 1000, Ki, Mi and Gi of 1024.

    Raises:
        UsageError: The text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) < 1e15:
        raise UsageError(f"{text!r} is not a size", hint="such as 1GB, 512MiB or 300000000")
    power = " KMGT".index(match[2].upper() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def lasting_space(space: str | None) -> str | None:
    """Returns --space as a run stores it: a file's path is absolute, to be valid in any folder."""
    return str(Path(space).absolute()) if space and Path(space).is_file() else space


def lasting(url: str | None) -> str | None:
    """Returns --storage as a run stores it: a journal's path is absolute, to be valid in any folder.

    Raises:
        UsageError: The value is one that `autotune kernels` takes as --precision.
    """
    if url in ("fp16", "fp32"):
        raise UsageError(
            f"--storage {url}: --storage says where a study is kept",
            hint=f"`autotune kernels --precision {url}` tunes kernels for it",
        )
    if url is None or not url.startswith(JOURNAL_PREFIX):
        return url
    return f"{JOURNAL_PREFIX}{Path(url.removeprefix(JOURNAL_PREFIX)).absolute()}"
