"""`autotune cpu-config compare`: determines which of two configurations is better, and how certain this is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import write_json, write_next, write_text


def _has_points(run: Path, _: str, options: Mapping[str, Any]) -> None:
    """Refuses a run without the points that are compared."""
    from autotune.jobs.requests import point_of
    from autotune.records import read_run

    found = read_run(run)
    for name in (options["first"], options["second"]):
        point_of(found, name)


def compare(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_path("cpu-config", "joint", check=_has_points),
            autocompletion=completion.runs,
            metavar="RUN",
            help="Folder of a run of cpu-config that has ended.",
        ),
    ],
    first: Annotated[
        str,
        typer.Argument(help="best, default, or a named point: fastest, least_energy, knee, ..."),
    ],
    second: Annotated[str, typer.Argument(help="Another one.")],
    by: Annotated[Literal["time", "energy"], typer.Option(help="What is compared.")] = "time",
    seed: Annotated[int, typer.Option(help="Seed of the orders and the bootstrap.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Measures two configurations of a run in interleaved blocks, until one is better or they are equal.

    After 12, 24, 36 and 48 blocks, the interval of the ratio may decide. With 5 % noise and five steps a
    block, equal configurations are called different in less than 5 % of comparisons, and a difference of 3 %
    is found in more than 90 %.

    \b
    Example:
      autotune cpu-config compare logs/20260102T030405Z-cpu-config-sm8150 best default --by energy
    """
    from autotune.jobs.steps import ComparisonRequest, compare_points
    from autotune.studies.space import compared_text, configuration_text, emulated_text

    done = compare_points(ComparisonRequest(run, first, second, by, seed))
    if json:
        write_json(done.content)
        write_next("report", done.path)
        return 0
    for name, point in zip((first, second), done.points, strict=True):
        write_text(f"{name}: {configuration_text(point)}")
    write_text(compared_text((first, second), done.content))
    print(f"{done.content['blocks']} blocks; run folder: {done.path}")
    if done.emulated:
        print(emulated_text(done.emulated))
    write_next("report", done.path)
    return 0


__all__ = ["compare"]
