"""`autotune report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run of cpu-config that has ended.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="[default: report.html in the run's folder]")
    ] = None,
) -> int:
    """Writes a run as one HTML page that needs nothing else: plots, tables, and the data to download.

    \b
    Example:
      autotune report logs/20260102T030405Z-cpu-config-sm8150
    """
    from autotune.errors import UsageError
    from autotune.records import read_run
    from autotune.report.cpu_config import check, cpu_config_page

    found = read_run(run)
    result = check(found.about, found.result, run)
    path = out or run / "report.html"
    try:
        path.write_text(cpu_config_page(run, found.about, found.events, result), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(str(path))
    return 0


__all__ = ["report"]
