"""`autotune runs`: the runs in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.options import LATEST, LOGS, all_runs
from autotune.cli.shared import Column, number, with_wide, write_json, write_next, write_table


@with_wide
def runs(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Folder that runs were made in. [default: logs]"),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The same, as other commands name it.")
    ] = None,
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

    if folder is not None and logs is not None:
        raise UsageError("DIR and --logs are the same", hint="give one of them")
    folder = folder or logs or LOGS
    if not folder.is_dir() and (folder != LOGS or folder.exists()):
        raise UsageError(
            f"{folder} is not a folder" if folder.exists() else f"there is no folder {folder}",
            hint="give the folder that runs were made in, as --logs names it",
        )
    found = [_described(run, about) for run, about in all_runs(folder)]
    if json:
        write_json({"folder": str(folder), "runs": found})
    elif found:
        _show(found)
    else:
        print(f"no runs in {folder}: `autotune kernels` makes one")
    _tell_next(found, folder)


def _tell_next(found: list[dict[str, Any]], folder: Path) -> None:
    """Prints the command that shows the newest run that has ended; without one, a command that makes a run."""
    ended = [one for one in found if one["ended"]]
    if not ended:
        write_next("kernels", "--model", "lenet", *(("--logs", folder) if folder != LOGS else ()))
    elif ended[0] is not found[0]:
        write_next("report", ended[0]["path"])
    else:
        write_next("report", LATEST if folder == LOGS else folder / LATEST)


def _show(found: list[dict[str, Any]]) -> None:
    from autotune.records import command_of

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
                command_of(one["kind"]) if one["kind"] else "-",
                one["model"] or "-",
                "-" if one["batch"] is None else str(one["batch"]),
                one["device"] or "-",
                "ended" if one["ended"] else "not ended",
                one["command"],
            )
            for one in found
        ],
    )


def _described(run: Path, about: dict[str, Any]) -> dict[str, Any]:
    from autotune.jobs.provenance import Work
    from autotune.records import how_to_end, kind_of

    request = about.get("request")
    request = request if isinstance(request, dict) else {}
    work = Work.of_run(run, about)
    device = about.get("device")
    ended = (run / "result.json").is_file()
    kind = kind_of(about)
    try:
        how = "" if ended else how_to_end(run, about)
    except (AttributeError, KeyError, TypeError):
        how = ""
    return {
        "name": run.name,
        "path": str(run),
        "kind": kind,
        "model": work.model or _text(request.get("workload")),
        "batch": work.batch,
        "device": _text(device.get("name")) if isinstance(device, dict) else "",
        "command": _text(about.get("command")),
        "ended": ended,
        "to_end": how,
    }


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


__all__ = ["runs"]
