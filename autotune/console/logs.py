"""The log of the project on stderr, and its verbosity."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autotune.errors import UsageError, printable
from autotune.waits import telling

LOGGER = logging.getLogger("autotune")


class _StderrHandler(logging.StreamHandler[Any]):
    """Writes to the present `sys.stderr`, so that a live progress display can take it. Writes each warning once."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self._warned: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.WARNING:
            text = record.getMessage()
            if text in self._warned:
                return
            self._warned.add(text)
        super().emit(record)

    @property
    def stream(self) -> Any:
        return sys.stderr

    def format(self, record: logging.LogRecord) -> str:
        return printable(f"autotune: {record.levelname.lower()}: {super().format(record)}")


@contextmanager
def stderr_log() -> Iterator[None]:
    """Sends the log under "autotune" to stderr: warnings and worse until `set_verbosity`."""
    handler = _StderrHandler()
    before = LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.WARNING)
    try:
        with telling(_tell):
            yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)


def _tell(wait: str) -> None:
    if not is_quiet():
        print(f"autotune: waiting: {printable(wait)}", file=sys.stderr)


def set_verbosity(*, verbose: bool, quiet: bool) -> None:
    """Sets the level of the log. With neither flag the level is unchanged.

    Raises:
        UsageError: Both flags are given.
    """
    if verbose and quiet:
        raise UsageError("--verbose and --quiet exclude each other", hint="give one of them")
    if verbose or quiet:
        LOGGER.setLevel(logging.INFO if verbose else logging.ERROR)


def is_verbose() -> bool:
    """Returns whether `-v` was given."""
    return LOGGER.getEffectiveLevel() <= logging.INFO


def is_quiet() -> bool:
    """Returns whether `-q` was given."""
    # Not `isEnabledFor`: other code disables logging for a while.
    return LOGGER.getEffectiveLevel() > logging.WARNING
