"""Values of options that depend on other options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Later(ABC):
    """The value of an option, to be found when all options of the command line are read."""

    @abstractmethod
    def found(self, option: str, options: Mapping[str, Any]) -> Any:
        """Returns the value.

        Args:
            option: Python name of the option.
            options: Values of all options of the command, by their Python names.

        Raises:
            UsageError: There is none.
        """


def find_all(options: dict[str, Any]) -> None:
    """Replaces each `Later` among the values of a command's options."""
    for option, value in list(options.items()):
        if isinstance(value, Later):
            options[option] = value.found(option, options)
        elif isinstance(value, list | tuple) and any(isinstance(one, Later) for one in value):
            options[option] = [
                one.found(option, options) if isinstance(one, Later) else one for one in value
            ]


__all__ = ["Later", "find_all"]
