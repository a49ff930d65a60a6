"""JSON that other programs can read: numbers that JSON does not allow are an error when writing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.errors import RecordError


def json_text(value: Any, indent: int | None = None, *, sort_keys: bool = False) -> str:
    """Returns a value as JSON text, on one line without spaces or indented.

    Raises:
        RecordError: A number in it is NaN or infinite, which JSON does not allow; the message gives its place.
    """
    separators = (",", ":") if indent is None else None
    try:
        return json.dumps(
            value, indent=indent, separators=separators, sort_keys=sort_keys, allow_nan=False
        )
    except ValueError as error:
        for path, number in _none_of_json(value, ""):
            raise RecordError(
                f"'{path}' is {number}, and JSON has no such number",
                hint="this is a fault of autotune: please report it",
            ) from error
        raise


def _none_of_json(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yields the places of numbers that JSON does not allow."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _none_of_json(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _none_of_json(inner, f"{path}[{number}]")
