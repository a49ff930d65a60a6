"""Stdout is the result's alone: whatever else writes to it in this process or in its children goes to stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO

_STDOUT, _STDERR = 1, 2
_HELP = ("-h", "--help", "--version")
_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def results() -> TextIO:
    """Where a result is written to."""
    return _RESULTS.get() or sys.stdout


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, be it right or wrong in what else it says."""
    words = list(arguments)
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options and not set(_HELP) & set(options)


@contextlib.contextmanager
def own_stdout(*, as_json: bool, to_the_end: bool) -> Iterator[None]:
    """Keeps stdout for `results()`.

    The file descriptor 1 becomes a copy of that of stderr, for native code and for child processes. `sys.stdout` is
    what `results()` gives; where the result is JSON it is `sys.stderr`, so that nothing else gets among it.

    Args:
        as_json: Whether the result is JSON.
        to_the_end: Whether the process ends afterwards: what it still prints then goes to stderr too.
    """
    null = Path(os.devnull)
    nowhere = null.open("w", encoding="utf-8") if sys.stdout is None else None  # closed below
    stream = nowhere or sys.stdout
    kept = None if nowhere else _taken(stream)
    token = _RESULTS.set(kept or stream)
    sys.stdout = sys.stderr if as_json else results()
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            results().flush()
        _RESULTS.reset(token)
        if kept is None or not to_the_end:
            sys.stdout = stream
        else:
            sys.stdout = sys.stderr
        if kept is not None and not to_the_end:
            _flush_native()
            os.dup2(kept.fileno(), _STDOUT)
        for opened in filter(None, (kept, nowhere)):
            with contextlib.suppress(OSError):
                opened.close()


def drop_results() -> None:
    """Has what is still to be written to the results go nowhere: who read them is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, results().fileno())
    os.close(nowhere)


def _taken(stream: TextIO) -> TextIO | None:
    """A stream to where the process's stdout goes, which is lent to stderr from now on; None where it has none."""
    try:
        if stream is not sys.__stdout__ or stream.fileno() != _STDOUT:
            return None
        stream.flush()
        copy = os.dup(_STDOUT)
    except (OSError, ValueError, io.UnsupportedOperation):
        return None
    try:
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # Stderr is closed.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
    return os.fdopen(
        copy,
        "w",
        encoding=stream.encoding,
        errors=stream.errors,
        buffering=1 if os.isatty(copy) else -1,
    )


def _flush_native() -> None:
    """Writes out what native code has printed and C's library still holds."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
