"""`autotune report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from autotune.records.folder import Run


def report(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run of cpu-config or of profile that has ended.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[default: report.html in the run's folder]")
    ] = None,
) -> int:
    """Writes a run as one HTML page that needs nothing else: plots, tables, and the data to download.

    \b
    Examples:
      autotune report logs/20260102T030405Z-cpu-config-sm8150
      autotune report logs/20260102T030405Z-profile-sm8150
    """
    from autotune.errors import UsageError
    from autotune.records import read_run
    from autotune.report import cpu_config, profile

    found = read_run(run)
    if "profile" in found.about.get("request", {}):
        result = profile.check(found.about, found.result, run)
        html = profile.profile_page(run, found.about, result, _timeline(found))
    else:
        result = cpu_config.check(found.about, found.result, run)
        html = cpu_config.cpu_config_page(run, found.about, found.events, result)
    path = out or run / "report.html"
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(str(path))
    return 0


def _timeline(run: Run) -> dict[str, Any]:
    """Power and calls over the time of a profile, from its raw records."""
    from autotune.errors import RecordError
    from autotune.measurement.timeline import Timeline, timeline
    from autotune.power.channels import Meter

    records = sorted(run.path.glob("record-*.jsonl"))
    if not records:
        return Timeline(None, None, None).to_json()
    told = next((event for event in run.events if event["event"] == "meter"), None)
    try:
        meter = Meter.from_json(told["meter"]) if told else None
        texts = [path.read_text(encoding="utf-8") for path in records]
        return timeline(texts, meter, told["settle_s"] if told else 0.0).to_json()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{run.path}: its records are damaged: {error}") from error


__all__ = ["report"]
