"""Finds runs, and the files that runs and plans name, even after they were moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def is_run(path: Path) -> bool:
    """Returns whether a path is a run's folder."""
    return (path / "run.json").is_file()


def place_of(named: str, holder: Path, there: Callable[[Path], bool] = is_run) -> Path | None:
    """Returns the present place of something that a run or a plan names; None if it is not found.

    Both may have been moved, for example by copying their folders to another machine. Endings of the name, the
    longest first, are tried below each folder above the holder. The name itself is tried last; a relative one is
    then looked for in the working directory.

    Args:
        named: Its path at the time of naming.
        holder: The run's folder, or the plan.
        there: Returns whether a path is the thing looked for.
    """
    path = Path(named)
    above = holder.resolve().parents
    ends = (Path(*path.parts[number:]) for number in range(len(path.parts)))
    candidates = (
        folder / end for end in ends for folder in above
    )  # The whole of an absolute name is itself.
    return next((one for one in (*candidates, path) if there(one)), None)


__all__ = ["is_run", "place_of"]
