"""`autotune runs`: the runs that a folder holds; and `latest`, the name of the newest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.output import Column, number, with_wide, write_json, write_table

LATEST = "latest"
LOGS = Path("logs")


def run_path(*kinds: str) -> Callable[[str], Path]:
    """What reads the path of a run in which `latest` stands for the newest run of some kinds, or of any.

    `latest` is the newest run in `logs`, and `DIR/latest` that in another folder; what lies in a run may follow, as
    in `latest/plans/best.json`. A file or folder of that name counts before it.

    Args:
        kinds: Of `autotune.records.run_kinds.Kind`; none for all.
    """

    def path(text: str) -> Path:
        return newest_at(Path(text), kinds)

    return path


def newest_at(path: Path, kinds: tuple[str, ...]) -> Path:
    """A path with its `latest` replaced, see `run_path`.

    Raises:
        UsageError: There is no such run, or nothing but a run of a similar name.
    """
    from autotune.errors import UsageError, meant

    if path.exists():
        return path
    if LATEST not in path.parts:
        beside = path.parent if len(path.parts) > 1 else LOGS
        named = {run.name: run for run, _ in _runs(beside)} | {LATEST: path.with_name(LATEST)}
        if near := meant(path.name, named):
            raise UsageError(f"no run at {path}", hint=f"did you mean '{named[near]}'?")
        return path
    at = path.parts.index(LATEST)
    folder = Path(*path.parts[:at]) if at else LOGS
    for run, about in _runs(folder):
        if not kinds or _kind(about) in kinds:
            return run.joinpath(*path.parts[at + 1 :])
    what = f" of {' or '.join(kinds)}" if kinds else ""
    raise UsageError(f"{path}: no run{what} in {folder}", hint="`autotune runs` lists runs")


@with_wide
def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder that runs were made in.")
    ] = LOGS,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lists the runs that a folder holds, the newest first.

    Wherever a command takes a run, `latest` is the newest one in logs that it can take, and DIR/latest that in
    another folder.

    \b
    Examples:
      autotune runs
      autotune report latest
      autotune runs experiments --json
    """
    from autotune.errors import UsageError

    if not folder.is_dir() and folder != LOGS:
        raise UsageError(
            f"there is no folder {folder}", hint="give the folder that --logs made runs in"
        )
    found = [_described(run, about) for run, about in _runs(folder)]
    if json:
        write_json({"folder": str(folder), "runs": found})
        return
    if not found:
        print(f"no runs in {folder}: `autotune kernels` makes one")
        return
    write_table(
        (
            Column("run", least=36),
            Column("command"),
            Column("model", least=10),
            number("batch", rank=1),
            Column("device", rank=2, least=12),
            Column("state"),
            Column("command line", rank=3),
        ),
        [
            (
                Path(one["path"]).name,
                one["kind"] or "-",
                one["model"] or "-",
                "-" if one["batch"] is None else str(one["batch"]),
                one["device"] or "-",
                "ended" if one["ended"] else "not ended",
                one["command"],
            )
            for one in found
        ],
    )


def _runs(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The runs of a folder with their `run.json`, the newest first; those that cannot be read are left out."""
    from autotune.errors import RecordError
    from autotune.records import read_json

    made = [(path.stat().st_mtime_ns, path) for path in folder.glob("*/run.json")]
    # The name begins with the second that a run was made in; runs of one second are told apart by their files.
    made.sort(key=lambda one: (one[1].parent.name[:16], one[0]), reverse=True)
    for _, path in made:
        try:
            about = read_json(path)
        except RecordError:
            continue
        if isinstance(about, dict):
            yield path.parent, about


def _kind(about: dict[str, Any]) -> str | None:
    from autotune.records import kind_of

    return kind_of(about)


def _described(run: Path, about: dict[str, Any]) -> dict[str, Any]:
    from autotune.records import how_to_end

    request = about.get("request")
    request = request if isinstance(request, dict) else {}
    step: dict[str, Any] = next(
        (request[name] for name in ("step", "profile") if isinstance(request.get(name), dict)), {}
    )
    device = about.get("device")
    ended = (run / "result.json").is_file()
    kind = _kind(about)
    try:
        how = "" if ended else how_to_end(run, about)
    except (AttributeError, KeyError, TypeError):
        how = ""
    return {
        "name": run.name,
        "path": str(run),
        "kind": kind,
        "model": _text(step.get("model") or request.get("workload")),
        "batch": step.get("batch", request.get("batch")),
        "device": _text(device.get("name")) if isinstance(device, dict) else "",
        "command": _text(about.get("command")),
        "ended": ended,
        "to_end": how,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


__all__ = ["run_path", "runs"]
