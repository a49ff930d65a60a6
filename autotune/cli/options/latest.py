"""`latest`: the name of the newest run, usable wherever a command takes a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.cli.options.fitting import Processor, processor_of, processors_for
from autotune.cli.shared import Later
from autotune.errors import AutotuneError, RecordError, UsageError, meant

LATEST = "latest"
LOGS = Path("logs")
_BEST_PLAN = Path("plans", "best.json")
_NAMED = 3
"""How many skipped runs are named."""

Check = Callable[[Path, str, Mapping[str, Any]], object]
"""Refuses a run that a command cannot take, with an `AutotuneError`.

It is given the run's folder, or the file in it that is meant; the Python name of the option; and the values of all
options by their Python names. It also fails where the run is damaged in a place that the command reads.
"""


def run_path(*kinds: str, ended: bool = True, check: Check | None = None) -> Callable[[str], Path]:
    """Returns a parser of run paths in which `latest` is the newest run that fits the command line.

    `latest` is the newest run in `logs`, and `DIR/latest` is the newest run in another folder. A path in the run
    may follow, as in `latest/plans/best.json`. An existing file or folder of that name has precedence.

    The parser returns a `Later` for `latest`.

    Args:
        kinds: Kinds as in `autotune.records.run_kinds.Kind`; none for all.
        ended: Whether only runs that have ended fit.
        check: Further check of the command; None if it takes all such runs.
    """

    def path(text: str) -> Any:
        return _path(Path(text), Path(), kinds, ended=ended, check=check)

    return path


def plan_path() -> Callable[[str], Path]:
    """Returns a parser of paths of plans. A run of `autotune joint` stands for its best plan; so does `latest`."""

    def path(text: str) -> Any:
        best = Path(text, _BEST_PLAN)
        return (
            best
            if best.is_file()
            else _path(Path(text), _BEST_PLAN, ("joint",), ended=False, check=_plan)
        )

    return path


def _plan(path: Path, *_: object) -> None:
    """Refuses a file that is no plan."""
    from autotune.studies.plans import read_plan

    read_plan(path)


def _path(
    path: Path, usual: Path, kinds: tuple[str, ...], *, ended: bool, check: Check | None = None
) -> Path | LatestRun:
    """Returns a path, or a `Later` if it contains `latest`.

    Args:
        path: The path.
        usual: File in the run that is meant if none is named.
        kinds: Kinds of run.
        ended: Whether only runs that have ended fit.
        check: Further check of the command.

    Raises:
        UsageError: There is no such run, but one of a similar name.
    """
    if path.exists():
        return path
    if LATEST in path.parts:
        at = path.parts.index(LATEST)
        folder = Path(*path.parts[:at]) if at else LOGS
        file = Path(*path.parts[at + 1 :])
        return LatestRun(folder, usual if file == Path() else file, kinds, ended, check)
    beside = path.parent if len(path.parts) > 1 else LOGS
    named = {run.name: run for run, _ in all_runs(beside)} | {LATEST: path.with_name(LATEST)}
    if near := meant(path.name, named):
        raise UsageError(f"no run at {path}", hint=f"did you mean '{named[near]}'?")
    return path


@dataclass(frozen=True)
class LatestRun(Later):
    """The newest run in a folder that a command can take.

    Attributes:
        folder: The folder.
        file: File or folder in the run that is meant; the run itself if it is empty.
        kinds: Kinds of run; none for all.
        ended: Whether only runs that have ended fit.
        check: Further check of the command.
    """

    folder: Path
    file: Path
    kinds: tuple[str, ...]
    ended: bool
    check: Check | None = None

    def found(self, option: str, options: Mapping[str, Any]) -> Path:
        """Returns the path; see `Later`.

        Runs that are damaged, or that the check refuses, are skipped. A warning names them. If none is left, the
        error of the newest one is raised.
        """
        wanted = processors_for(option, options) if "kernels" in self.kinds else ()
        skipped: dict[str, AutotuneError] = {}
        refused: AutotuneError | None = None
        for run, about in _runs(self.folder):
            if isinstance(about, RecordError):
                skipped[run.name] = about
                continue
            if not self._fits(run, about, wanted):
                continue
            try:
                self._try(run, option, options)
            except AutotuneError as error:
                skipped[run.name] = error
                refused = refused or error
            else:
                _tell_skipped(skipped)
                return run / self.file
        if refused is not None:
            raise refused
        _tell_skipped(skipped)
        raise UsageError(
            f"{LATEST}: no {'finished ' if self.ended else ''}run{self._what(wanted)} in {self.folder}",
            hint=f"`autotune kernels --target {wanted[0]}` makes one"
            if wanted
            else f"`autotune runs DIR` lists the runs of a folder, and DIR/{LATEST} is its newest run",
        )

    def _try(self, run: Path, option: str, options: Mapping[str, Any]) -> None:
        """Reads what the command will read.

        Raises:
            AutotuneError: The run is damaged, or the check refuses it.
        """
        from autotune.reading import reading
        from autotune.records import kind_of, read_run

        with reading(run / self.file):
            if self.file == Path():
                found = read_run(run)
                if self.ended and kind_of(found.about) == "kernels":
                    found.kernel_result()
            if self.check is not None:
                self.check(run / self.file, option, options)

    def _fits(self, run: Path, about: Mapping[str, Any], wanted: tuple[Processor, ...]) -> bool:
        from autotune.records import kind_of

        return (
            (not self.kinds or kind_of(about) in self.kinds)
            and (not wanted or processor_of(about) in (None, *wanted))
            and (run / self.file).exists()
            and (not self.ended or (run / "result.json").is_file())
        )

    def _what(self, wanted: tuple[Processor, ...]) -> str:
        text = f" of {' or '.join(self.kinds)}" if self.kinds else ""
        if wanted:
            text += f" for {' or '.join(map(str, wanted))}"
        if self.file != Path():
            return f"{text} with {self.file}"
        return text


def all_runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the runs in a folder with their `run.json`, newest first. Unreadable ones are left out."""
    for run, about in _runs(folder):
        if not isinstance(about, RecordError):
            yield run, about


def _runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | RecordError]]:
    """Yields the runs in a folder with their `run.json`, or the reason why it cannot be read, newest first."""
    from autotune.records import read_json

    made = [(path.lstat().st_mtime_ns, path) for path in folder.glob("*/run.json")]
    # The name begins with the second in which a run was made. Runs of the same second are ordered by their files'
    # times.
    made.sort(key=lambda one: (one[1].parent.name[:16], one[0]), reverse=True)
    for _, path in made:
        try:
            about = read_json(path)
        except RecordError as error:
            yield path.parent, error
            continue
        if isinstance(about, dict):
            yield path.parent, about
        else:
            yield path.parent, RecordError(f"{path} is damaged: it is not an object")


def _tell_skipped(skipped: Mapping[str, AutotuneError]) -> None:
    """Warns that runs were skipped, newest first, and why the newest was."""
    if not skipped:
        return
    from autotune.console import LOGGER

    names = list(skipped)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    reason = skipped[names[0]].message
    LOGGER.warning("%s: skipped %s%s: %s", LATEST, ", ".join(names[:_NAMED]), more, reason)


__all__ = ["LATEST", "LOGS", "LatestRun", "all_runs", "plan_path", "run_path"]
