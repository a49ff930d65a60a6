"""The project's tree of errors, and the exit code of each branch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended."""
_ALIKE = 0.7
"""Share of letters in common, by difflib, from which a name may be a slip of the keyboard."""


def pip_install(*requirements: str, options: str = "") -> str:
    """Returns the command that installs Python packages into this environment."""
    words = [shlex.quote(sys.executable), "-m pip install", options]
    return " ".join([*filter(None, words), *map(shlex.quote, requirements)])


def printable(text: str) -> str:
    """Returns a text without control characters for a terminal.

    Text from files or devices may contain them on purpose.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def counted(number: int, what: str) -> str:
    """Returns a number of things: `1 run`, `2 runs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def choices(given: str, known: Iterable[str], before: str = "one of") -> str:
    """Returns a hint that lists names, beginning with the probably intended one.

    Args:
        given: The name that was given.
        known: The known names.
        before: Text before the list.
    """
    names = list(known)
    near = meant(given, names)
    first = f"did you mean '{near}'? " if near else ""
    return f"{first}{before} {', '.join(names)}"


def meant(given: str, known: Iterable[str]) -> str:
    """Returns the probably intended name; empty if none is similar."""
    lowered = {name.lower(): name for name in known}
    near = get_close_matches(given.lower(), lowered, n=1, cutoff=_ALIKE)
    return lowered[near[0]] if near else ""


class AutotuneError(Exception):
    """An error with a message for the user and, if there is one, the step that fixes it.

    Args:
        message: The error and its place, in one line.
        hint: The next step; empty if there is nothing to suggest.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "failed"
    """The error's kind in JSON."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = printable(message)
        self.hint = printable(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(AutotuneError):
    """The request itself is wrong: an unknown name, an impossible shape, a malformed file."""

    exit_code = 2
    kind = "usage"


class DeviceError(AutotuneError):
    """A device could not be reached or did not do what it was told."""

    exit_code = 3
    kind = "device"


class TransientDeviceError(DeviceError):
    """A device fault that a retry may fix."""


class StableDeviceError(DeviceError):
    """A device fault that no retry fixes."""


class ToolchainError(AutotuneError):
    """A compiler, a library or a package that the work needs is missing or unusable."""

    exit_code = 4
    kind = "toolchain"


class NothingMeasuredError(AutotuneError):
    """The run ended without one valid measurement."""

    exit_code = 5
    kind = "nothing_measured"


class RecordError(AutotuneError):
    """A run folder or a record in it is missing, damaged or in use."""

    kind = "record"
