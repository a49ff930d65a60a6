"""`autotune report`: a run as one HTML page, or as data for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import say_next, write_next

if TYPE_CHECKING:
    from autotune.records import Kind, Result, Run


def _reportable(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run that has no page, or with --csv or --t4 no such table."""
    from autotune.records import read_run

    found = read_run(run)
    if options["csv"] is not None:
        csv_of(found)
    if options["t4"] is not None:
        _t4(found)
    if options["out"] is not None or options["csv"] is options["t4"] is None:
        _page(found)


def report(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_path(ended=False, check=_reportable),
            autocompletion=completion.runs,
            metavar="RUN",
            help="Folder of a run of kernels, joint, cpu-config or profile.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[default: report.html in the run's folder]")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a table instead: kernels, or configurations, as CSV."
        ),
    ] = None,
    t4: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the trials instead, in Kernel Tuner's T4 form (JSON)."
        ),
    ] = None,
) -> int:
    """Writes a run as one HTML page that needs nothing else: plots, tables, and the data to download.

    An unfinished run is shown up to its last measurement. docs/reports.md explains each page. With --csv or
    --t4, a page is written only if --out is given; docs/interop.md explains these files.

    \b
    Examples:
      autotune report logs/20260102T030405Z-arm-cpu-lenet
      autotune report logs/20260102T030405Z-joint-sm8150 --out joint.html
      autotune report latest --csv kernels.csv --t4 trials.json
    """
    from autotune.records import json_text, read_run

    for file, text in ((csv, csv_of), (t4, lambda found: json_text(_t4(found), 2) + "\n")):
        if file is not None:
            write_page(file, text(read_run(run)))
            typer.echo(str(file))
    if out is None and (csv is not None or t4 is not None):
        write_next("report", run)
        return 0
    path = out or run / "report.html"
    write_page(path, _page(read_run(run)))
    typer.echo(str(path))
    say_next("python -m webbrowser", path.absolute())
    return 0


def write_page(path: Path, html: str) -> None:
    """Writes a page, completely or not at all.

    Raises:
        UsageError: It cannot be written there.
    """
    from autotune.errors import RecordError, UsageError
    from autotune.records import write_text

    try:
        write_text(path, html)
    except RecordError as error:
        raise UsageError(error.message, hint=error.hint) from error


def _page(found: Run) -> str:
    """Returns the page of a run, by its kind.

    Raises:
        UsageError: The run has no page, or nothing was measured yet.
        RecordError: Its records are damaged.
    """
    from autotune.reading import reading

    kind, unfinished = _kind(found)
    with reading(found.path):
        if kind == "kernels":
            return _kernels(found, unfinished)
        if kind == "profile":
            return _profile(found)
        if kind == "comparison":
            from autotune.report.pages import comparison_page

            return comparison_page(found.about, found.events, found.result, unfinished)
        return _search(found, unfinished)


def _kind(found: Run) -> tuple[Kind, str]:
    """Returns the kind of a run that has a page, and a text saying that it has not ended, which may be empty.

    Raises:
        UsageError: The run has no page, or nothing was measured yet.
    """
    from autotune.errors import UsageError
    from autotune.records import kind_of

    kind = kind_of(found.about)
    if kind is None:
        raise UsageError(
            f"{found.path} is not a run of a known command",
            hint="give a run of kernels, joint, cpu-config or profile",
        )
    return kind, _unfinished(found, kind) if found.result is None else ""


def _unfinished(run: Run, kind: str) -> str:
    """Returns a text saying that a run has not ended.

    Raises:
        UsageError: There is nothing to show yet.
    """
    from autotune.errors import UsageError
    from autotune.records import how_to_end

    how = how_to_end(run.path, run.about)
    if kind == "profile":
        raise UsageError(f"{run.path} has no result: it did not end", hint=how)
    measured = {"kernels": ("default", "trial"), "comparison": ("run",)}.get(kind, ("trial",))
    done = [event for event in run.events if event["event"] in measured]
    if not any(event.get("status") == "ok" for event in done):
        raise UsageError(
            f"{run.path} has not ended, and nothing was measured yet",
            hint=how,
        )
    trials = sum(event["event"] != "default" for event in done)
    asked = run.about["request"].get("trials")
    text = f"This run has not ended: {trials}{f' of {asked}' if asked else ''} measurements. "
    text += "Nothing was measured again at the end, so that figures are of single measurements."
    return f"{text} {how[0].upper()}{how[1:]}"


def csv_of(run: Run) -> str:
    """Returns a run's kernels, or configurations, as a CSV table.

    Raises:
        UsageError: The run is of another kind, or nothing was measured yet.
    """
    from autotune.reading import reading
    from autotune.report.tables import kernels_csv, search_csv

    kernels = _of_kernels(run)
    with reading(run.path):
        return (
            kernels_csv(_kernel_result(run))
            if kernels
            else search_csv(run.events, _search_result(run))
        )


def _t4(run: Run) -> dict[str, Any]:
    from autotune.reading import reading
    from autotune.report.tables import kernels_t4, search_t4

    kernels = _of_kernels(run)
    with reading(run.path):
        return kernels_t4(run.events) if kernels else search_t4(run.events, _search_result(run))


def _of_kernels(run: Run) -> bool:
    """Returns whether a run that can be exported as data is a kernel run; otherwise it is a search.

    Raises:
        UsageError: The run is of another kind, or nothing was measured yet.
    """
    from autotune.errors import UsageError
    from autotune.records import kind_of

    kind = kind_of(run.about)
    if kind not in ("kernels", "joint", "cpu-config"):
        raise UsageError(
            f"--csv and --t4 are for runs of kernels, joint and cpu-config, and {run.path} is none",
            hint="`autotune report RUN` writes its page, with its tables as CSV",
        )
    if run.result is None:
        _unfinished(run, kind)
    return kind == "kernels"


def _kernel_result(run: Run) -> Result:
    from autotune.report.pages import kernels_so_far

    return kernels_so_far(run.about, run.events) if run.result is None else run.kernel_result()


def _kernels(run: Run, unfinished: str) -> str:
    from autotune.report.pages import kernels_page

    return kernels_page(run.about, run.events, _kernel_result(run), run.result, unfinished)


def _search_result(run: Run) -> dict[str, Any]:
    from autotune.jobs.device import limits
    from autotune.report.pages import search_so_far

    if run.result is not None:
        return run.result
    asked = run.about["request"]
    names = ("deadline", "energy_budget", "max_temperature", "memory_limit")
    return search_so_far(run.about, run.events, limits(*(asked.get(name) for name in names)))


def _search(run: Run, unfinished: str) -> str:
    from autotune.errors import RecordError
    from autotune.records import read_json
    from autotune.report.pages import cpu_config_page

    result = _search_result(run)
    plans = {}
    for name, file in result.get("plans", {}).items():
        if Path(file).parent != Path("plans"):
            raise RecordError(
                f"{run.path / 'result.json'} is damaged: {file!r} is not a file of plans/"
            )
        plans[name] = read_json(run.path / file)
    return cpu_config_page(run.path, run.about, run.events, result, plans, unfinished)


def _profile(run: Run) -> str:
    from autotune.report.pages import profile_page

    assert run.result is not None
    return profile_page(run.path, run.about, run.result, _timeline(run))


def _timeline(run: Run) -> dict[str, Any]:
    """Returns power and calls of a profile over time, from its raw records."""
    from autotune.errors import RecordError
    from autotune.measurement import Timeline, timeline
    from autotune.power import Meter
    from autotune.reading import LINES, read_text

    records = sorted(run.path.glob("record-*.jsonl"))
    if not records:
        return Timeline(None, None, None).to_json()
    event = next((event for event in run.events if event["event"] == "meter"), None)
    try:
        meter = Meter.from_json(event["meter"]) if event else None
        texts = [read_text(path, LINES, RecordError) for path in records]
        return timeline(texts, meter, event["settle_s"] if event else 0.0).to_json()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{run.path}: its records are damaged: {error}") from error


__all__ = ["report", "write_page"]
