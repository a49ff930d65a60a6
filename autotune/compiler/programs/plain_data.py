"""Converts TVM's JSON-like objects to plain Python data, which the standard library can write."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    """Copies TVM arrays, maps and numbers into lists, dictionaries and Python numbers.

    Raises:
        TypeError: A part is neither a container, a number, text nor None.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float):
        return value
    if hasattr(value, "items"):
        return {str(key): plain(part) for key, part in value.items()}
    if hasattr(value, "__len__"):
        return [plain(part) for part in value]
    number = getattr(value, "value", None)
    if isinstance(number, int | float):
        return number
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")
