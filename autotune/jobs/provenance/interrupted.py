"""Runs that Ctrl-C ended before they had a result."""

from __future__ import annotations

from pathlib import Path


def how_to_resume(run: Path, command: str) -> str:
    """The line that tells how to go on with a run.

    Args:
        run: Its folder.
        command: The command that made it, such as `kernels`.
    """
    return (
        "autotune: interrupted; everything measured is kept. Go on with: "
        f"autotune {command} --resume {run}"
    )


class RunInterrupted(Exception):  # noqa: N818  # what happened, as KeyboardInterrupt is
    """A run was interrupted. Everything that it has measured is kept.

    It is no `KeyboardInterrupt`, which the command line's library would take for its own.

    Attributes:
        run: The run's folder.
        command: The command that goes on with it, without `autotune`.
    """

    def __init__(self, run: Path, command: str, more: str = "") -> None:
        super().__init__("\n".join(filter(None, (how_to_resume(run, command), more))))
        self.run = run
        self.command = command
