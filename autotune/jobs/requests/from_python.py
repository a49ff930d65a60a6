"""Checks values that were given in Python, where nothing has parsed them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from autotune.errors import UsageError, choices, printable
from autotune.reading import complaint


def checked_fields(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values for fields of a request, in the fields' types.

    Texts become paths, lists become tuples, and one value becomes a tuple of one, where a field needs that. Other
    types are refused, also those that Python would convert: 2.5 and True are no counts.

    Args:
        kind: The request's class.
        values: Values by the field's name. None is accepted for any field.

    Raises:
        UsageError: A value is of another type.
    """
    hints = get_type_hints(kind)
    return {
        name: value if value is None else _converted(name, hints[name], value)
        for name, value in values.items()
    }


def known_options(options: Mapping[str, Any], kind: type[Any]) -> None:
    """Refuses names that are not known.

    Args:
        options: Options by name.
        kind: The `TypedDict` of the known ones.

    Raises:
        UsageError: A name is not known.
    """
    known = list(get_type_hints(kind))
    for name in options:
        if name not in known:
            raise UsageError(f"{name} is not an option", hint=choices(name, known, "options:"))


def checked_shape(shape: Any) -> str | None:
    """Returns the shape of a sample as `--input-shape` takes it.

    Raises:
        UsageError: It is not a sequence of whole numbers.
    """
    if shape is None or isinstance(shape, str):
        return shape
    sizes = checked_fields(_Shape, {"input_shape": shape})["input_shape"]
    return "x".join(map(str, sizes))


def checked_callbacks(callbacks: Any) -> tuple[Callable[..., Any], ...]:
    """Returns the functions, of which there may be one alone.

    Raises:
        UsageError: Something else is among them.
    """
    some = (callbacks,) if callable(callbacks) else callbacks
    if not isinstance(some, list | tuple) or not all(map(callable, some)):
        raise UsageError("callbacks are not functions", hint="give a list of functions")
    return tuple(some)


class _Shape:
    input_shape: tuple[int, ...]


def _converted(name: str, hint: Any, value: Any) -> Any:
    kinds = [one for one in get_args(hint) if one is not type(None)] or [hint]
    if get_origin(hint) is tuple:
        some = value if isinstance(value, list | tuple) else (value,)
        return tuple(_converted(name, get_args(hint)[0], one) for one in some)
    if Path in kinds or hint is Path:
        value = Path(value) if isinstance(value, str) else value
    elif hasattr(value, "__index__") and not isinstance(value, bool):
        value = int(value)  # numpy's integers.
    try:
        return TypeAdapter(hint).validate_python(value, strict=True)
    except ValidationError as error:
        _, why = complaint(error)
        shown = printable(repr(value)[:60])
        raise UsageError(
            f"{name} is {shown}: {why[:1].lower()}{why[1:]}", hint="see help(autotune)"
        ) from None
