"""Carries out a search, and prints its result on stdout."""

from __future__ import annotations

from pathlib import Path

from autotune.cli.search_commands.cpu_config_table import show
from autotune.cli.shared import write_json, write_next
from autotune.jobs.requests import SearchRequest
from autotune.jobs.search import Search


def carry_out(
    request: SearchRequest, logs: Path | None, resume: Path | None, *, as_json: bool
) -> int:
    """Starts or resumes a search, prints the result, and returns the exit code.

    Args:
        request: The request; when resuming, only trials and a storage.
        logs: Folder of the new run's folder; None for `logs`.
        resume: The run to resume; None for a new one.
        as_json: Print the JSON object instead of the table.

    Raises:
        AutotuneError: See `Search.run`.
    """
    search = Search.new(request, logs) if resume is None else Search.resumed(resume, request, logs)
    done = search.run()
    found = done.content
    if as_json:
        write_json(found)
    else:
        show(found, done.path)
    if request.joint and not found["emulated"]:
        write_next("step", "--plan", done.path / "plans" / "best.json")
    elif found["emulated"] or request.joint:
        write_next("report", done.path)
    else:
        write_next("cpu-config", "apply", done.path)
    return 0


__all__ = ["carry_out"]
