"""Runs `autotune` as a user does, in a process of its own."""

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import warm

from autotune.cli.main import main

AUTOTUNE = [sys.executable, "-m", "autotune"]
_READ_LATE = {"AUTOTUNE_SSH_CONFIG", "XDG_STATE_HOME"}
"""Variables that no import reads."""


def autotune(
    *arguments: str | Path, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end.

    With other variables of its own it is no fork: what is imported may read them.
    """
    words = [str(argument) for argument in arguments]
    if environment.keys() <= _READ_LATE:
        return warm.run(words, {**os.environ, **environment}, timeout)
    return subprocess.run(
        [*AUTOTUNE, *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )


def autotune_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, which need not start and import everything again."""
    words = [str(argument) for argument in arguments]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as errors:
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def one_folder(logs: Path) -> Path:
    """The only run folder in there."""
    (folder,) = logs.iterdir()
    return folder
