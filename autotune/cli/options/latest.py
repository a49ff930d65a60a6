"""`latest`: the name of the newest run, usable wherever a command takes a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from autotune.errors import RecordError, UsageError, meant

LATEST = "latest"
LOGS = Path("logs")


def run_path(*kinds: str) -> Callable[[str], Path]:
    """Returns a parser of run paths in which `latest` is the newest run of the given kinds.

    `latest` is the newest run in `logs`, and `DIR/latest` is the newest run in another folder. A path in the run
    may follow, as in `latest/plans/best.json`. An existing file or folder of that name has precedence.

    Args:
        kinds: Kinds as in `autotune.records.run_kinds.Kind`; none for all.
    """

    def path(text: str) -> Path:
        return newest_at(Path(text), kinds)

    return path


def newest_at(path: Path, kinds: tuple[str, ...]) -> Path:
    """Returns a path with its `latest` replaced; see `run_path`.

    Raises:
        UsageError: There is no such run, or only a run of a similar name.
    """
    if path.exists():
        return path
    if LATEST not in path.parts:
        beside = path.parent if len(path.parts) > 1 else LOGS
        named = {run.name: run for run, _ in all_runs(beside)} | {LATEST: path.with_name(LATEST)}
        if near := meant(path.name, named):
            raise UsageError(f"no run at {path}", hint=f"did you mean '{named[near]}'?")
        return path
    from autotune.records import kind_of

    at = path.parts.index(LATEST)
    folder = Path(*path.parts[:at]) if at else LOGS
    for run, about in all_runs(folder):
        if not kinds or kind_of(about) in kinds:
            return run.joinpath(*path.parts[at + 1 :])
    what = f" of {' or '.join(kinds)}" if kinds else ""
    raise UsageError(f"{path}: no run{what} in {folder}", hint="`autotune runs` lists runs")


def all_runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the runs in a folder with their `run.json`, newest first. Unreadable ones are left out."""
    from autotune.records import read_json

    made = [(path.stat().st_mtime_ns, path) for path in folder.glob("*/run.json")]
    # The name begins with the second in which a run was made. Runs of the same second are ordered by their files'
    # times.
    made.sort(key=lambda one: (one[1].parent.name[:16], one[0]), reverse=True)
    for _, path in made:
        try:
            about = read_json(path)
        except RecordError:
            continue
        if isinstance(about, dict):
            yield path.parent, about


__all__ = ["LATEST", "LOGS", "all_runs", "newest_at", "run_path"]
