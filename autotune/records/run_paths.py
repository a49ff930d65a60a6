"""Where runs are, and what runs and plans name, wherever all of it is now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def is_run(path: Path) -> bool:
    """Whether a path is a run's folder."""
    return (path / "run.json").is_file()


def place_of(named: str, holder: Path, there: Callable[[Path], bool] = is_run) -> Path | None:
    """Where something is that a run or a plan names; None where it is not found.

    Both may have been moved, as folders that are copied to another machine are: of what is there below a folder
    above the one that names it, that counts whose path shares the longest end with the name. A relative name is
    looked for in the working directory last.

    Args:
        named: Its path, as it was when it was named.
        holder: The run's folder, or the plan.
        there: Tells whether a path is what is looked for.
    """
    path = Path(named)
    above = holder.resolve().parents
    ends = (Path(*path.parts[number:]) for number in range(len(path.parts)))
    candidates = (
        folder / end for end in ends for folder in above
    )  # The whole of an absolute name is itself.
    return next((one for one in (*candidates, path) if there(one)), None)


__all__ = ["is_run", "place_of"]
