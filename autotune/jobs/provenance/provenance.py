"""Provenance of a run or a result: command line, versions, device, Git revision."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune import __version__
from autotune.jobs.requests import DEFAULT_BATCH
from autotune.records import work_of

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


@dataclass(frozen=True)
class Work:
    """What a result is about.

    Attributes:
        folder: The run's folder; None if there is none.
        model: The model, as the user named it; None for another program, for one operator, or if it is unknown.
        batch: Samples in a step.
    """

    folder: Path | None = None
    model: str | None = None
    batch: int | None = None

    @classmethod
    def of_run(cls, folder: Path, about: Mapping[str, Any]) -> Work:
        """Returns the work of a run.

        Args:
            folder: Its folder.
            about: Content of its `run.json`.
        """
        model, batch = work_of(about)
        return cls(folder, model, DEFAULT_BATCH if batch is None and model else batch)


def named(
    content: Mapping[str, Any],
    work: Work | None = None,
    *,
    resumed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns a result with the names of its run and its model added, and how it was made.

    Args:
        content: The result. A name that it already contains is kept.
        work: What it is about; None for a result that is of no run and of no model, such as a list of targets.
        resumed: For a run that was resumed, content of its `run.json`: the command that made the run stays its
            command.
    """
    names: dict[str, Any] = {}
    if work is not None:
        folder = None if work.folder is None else str(work.folder)
        names = {"run_folder": folder, "model": work.model, "batch": work.batch}
    if resumed is None:
        names["command"] = command_line()
    else:
        names |= {"command": resumed.get("command", ""), "resume_command": command_line()}
    return {**names, "versions": versions(), **content}


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
