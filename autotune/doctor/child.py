"""Runs checks in child processes, because the checked program may hang or die from a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.children import TooMuchOutput, run_to_end

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Finished:
    """How a child process ended.

    Attributes:
        works: Whether it ended with exit code 0.
        output: What it wrote to stdout.
        reason: Why it does not work, in one line; empty when it works.
        signal: Name of the signal that ended it, such as `SIGSEGV`; empty otherwise.
        last_words: The last line that it wrote to stderr before a signal ended it.
    """

    works: bool
    output: str
    reason: str = ""
    signal: str = ""
    last_words: str = ""


def run(
    argv: Sequence[str], *, timeout: float, variables: Mapping[str, str] | None = None
) -> Finished:
    """Runs a program to its end, or kills it and its children.

    Args:
        argv: Program and arguments.
        timeout: Seconds it may take.
        variables: Environment variables to add.
    """
    try:
        done = run_to_end(argv, timeout=timeout, environment={**os.environ, **(variables or {})})
    except OSError as error:
        return Finished(False, "", f"cannot be started: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Finished(False, "", f"no answer within {timeout:g} s")
    except TooMuchOutput as error:
        return Finished(False, "", error.message)
    output, errors = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    code = done.returncode
    if code == 0:
        return Finished(True, output)
    if code < 0:
        name = signal_name(-code)
        return Finished(False, output, f"the process died by {name}", name, _last_line(errors))
    return Finished(False, output, _last_line(errors) or f"exit code {code}")


def run_module(
    module: str, *arguments: str, timeout: float, variables: Mapping[str, str] | None = None
) -> Finished:
    """Runs a module of this environment as a program. The working directory is not searched for it."""
    argv = [sys.executable, "-P", "-m", module, *arguments]
    return run(argv, timeout=timeout, variables=variables)


def signal_name(number: int) -> str:
    """Returns the name of a signal, or its number if it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else ""
