"""Runs that Ctrl-C ended before they had a result."""

from __future__ import annotations

from pathlib import Path


def how_to_resume(run: Path, command: str) -> str:
    """Returns the line that says how to resume a run.

    Args:
        run: Its folder.
        command: The command that made it, such as `kernels`.
    """
    return (
        "autotune: interrupted; everything measured is kept. Go on with: "
        f"autotune {command} --resume {run}"
    )


class RunInterrupted(Exception):  # noqa: N818  # what happened, as KeyboardInterrupt is
    """A run was interrupted. All of its measurements are kept.

    This is not a `KeyboardInterrupt`, because the command line's library would handle that itself.

    Attributes:
        run: The run's folder.
        command: The command that resumes it, without `autotune`.
    """

    def __init__(self, run: Path, command: str, more: str = "") -> None:
        super().__init__("\n".join(filter(None, (how_to_resume(run, command), more))))
        self.run = run
        self.command = command
