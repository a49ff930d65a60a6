"""Keeps stdout for the result. All other output of this process and its children goes to stderr."""

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
    """Returns the stream for results."""
    return _RESULTS.get() or sys.stdout


def wants_json(arguments: Sequence[str]) -> bool:
    """Returns whether a command line asks for JSON, even if it is wrong otherwise."""
    words = list(arguments)
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options and not set(_HELP) & set(options)


@contextlib.contextmanager
def own_stdout(*, as_json: bool, to_the_end: bool) -> Iterator[None]:
    """Keeps stdout for `results()`.

    File descriptor 1 becomes a copy of stderr's, for native code and child processes. `sys.stdout` becomes the
    stream of `results()`. If the result is JSON, it becomes `sys.stderr` instead, so that nothing is mixed into the
    result.

    Args:
        as_json: Whether the result is JSON.
        to_the_end: Whether the process ends afterwards. Its later output then goes to stderr too.
    """
    null = Path(os.devnull)
    nowhere = null.open("w", encoding="utf-8") if sys.stdout is None else None  # Closed below.
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
    """Discards unwritten results, because their reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, results().fileno())
    os.close(nowhere)


def _taken(stream: TextIO) -> TextIO | None:
    """Returns a stream to the process's stdout, and redirects stdout to stderr; None if there is no stdout."""
    try:
        if stream is not sys.__stdout__ or stream.fileno() != _STDOUT:
            return None
        stream.flush()
        copy = os.dup(_STDOUT)
    except (OSError, ValueError, io.UnsupportedOperation):
        return None
    try:
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # stderr is closed.
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
    """Flushes the output of native code that C's library still buffers."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)
