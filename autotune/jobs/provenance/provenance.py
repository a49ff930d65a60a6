"""Provenance of a run or a result: command line, versions, device, Git revision."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune import __version__

_COMMAND: ContextVar[str] = ContextVar("command", default="")
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "optuna")


def versions() -> dict[str, str]:
    """Returns versions of autotune, Python and the packages that results depend on, by name."""
    return {
        "autotune": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


@contextmanager
def command_line_of(arguments: Sequence[str]) -> Iterator[None]:
    """Records the arguments of `autotune` in runs and results that are made inside the context."""
    token = _COMMAND.set(shlex.join(["autotune", *map(_without_password, arguments)]))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def command_line() -> str:
    """Returns the command line, with `***` for the password in a URL; empty if there is none."""
    return _COMMAND.get()


def _without_password(word: str) -> str:
    if "://" not in word:
        return word
    from autotune.studies.run import hidden

    return hidden(word)


def named(
    content: Mapping[str, Any],
    *,
    folder: Path | None = None,
    model: str | None = None,
    batch: int | None = None,
) -> dict[str, Any]:
    """Returns a result with the names of its run and its model added.

    Args:
        content: The result. A name that it already contains is kept.
        folder: The run's folder; None if none was made.
        model: The model; None for another program, or for one operator.
        batch: Samples in a step.
    """
    names = {
        "run_folder": None if folder is None else str(folder), "model": model, "batch": batch,
        "command": command_line(), "versions": versions(),
    }  # fmt: skip
    return {**names, **content}


def about_run(request: Mapping[str, Any], device: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of `run.json`: the request, the device and the versions."""
    return {
        "request": dict(request),
        "command": command_line(),
        "versions": versions(),
        "device": dict(device),
        "git": _revision(),
    }


def _revision() -> str:
    """Returns the Git revision of the sources; empty outside a checkout or without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
