"""`autotune compare`: compares two runs of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import (
    Column,
    name_of,
    number,
    roles,
    say_next,
    speedup_text,
    speedups,
    time_text,
    with_wide,
    write_json,
    write_next,
    write_table,
    write_text,
)
from autotune.errors import counted


def _comparable(run: Path, option: str, options: Mapping[str, Any]) -> None:
    """Refuses a run that cannot be compared, or not with the other run, if that is already known."""
    from autotune.records import is_run, read_run
    from autotune.report.comparing import compared

    other = options["second" if option == "first" else "first"]
    known = isinstance(other, Path) and is_run(other)
    compared(read_run(run), read_run(other if known else run))


@with_wide
def compare(
    first: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", "joint", "cpu-config", "profile", check=_comparable),
            autocompletion=completion.runs,
            metavar="FIRST",
            help="Folder of a run that has ended.",
        ),
    ],
    second: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels", "joint", "cpu-config", "profile", check=_comparable),
            autocompletion=completion.runs,
            metavar="SECOND",
            help="Folder of another one of the same command.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write both as one HTML page, too.")
    ] = None,
) -> int:
    """Compares two runs of kernels, joint, cpu-config or profile: figures, ratios, and what differs.

    Nothing is measured again. The runs were made at different times; to compare two configurations in
    interleaved blocks, use `autotune cpu-config compare`.

    \b
    Examples:
      autotune compare logs/20260102T030405Z-cpu-lenet logs/20260103T030405Z-cpu-lenet
      autotune compare logs/20260102T030405Z-joint-sm8150 logs/20260103T030405Z-joint-sm8150 --html both.html
    """
    from autotune.cli.commands.report import write_page
    from autotune.jobs.provenance import Work, command_line
    from autotune.reading import reading
    from autotune.records import read_run
    from autotune.report.comparing import compare_page, compared

    runs = read_run(first), read_run(second)
    with reading(f"{first} or {second}"):
        found = compared(*runs)
        page = compare_page(found, *runs, command_line()) if html is not None else ""
        if not json:
            show(found)
    if html is not None:
        write_page(html, page)
    if json:
        write_json(found, replace(Work.of_run(first, runs[0].about), folder=None))
    elif html is not None:
        print(f"page: {html}")
    if html is None:
        write_next("compare", first, second, "--html", "compare.html")
    else:
        say_next("python -m webbrowser", html.absolute())
    return 0


def show(found: dict[str, Any]) -> None:
    """Prints a comparison of two runs."""
    from autotune.report.comparing import text as texts

    for side in ("first", "second"):
        one = found[side]
        trials = f"{counted(one['trials'], 'trial')} " if one["trials"] is not None else ""
        write_text(f"{side + ':':<8}{one['run']}: {trials}on {one['device']}")
    for warning in found["warnings"]:
        write_text(f"warning: {warning}")
    print()
    if found["kind"] == "kernels":
        write_table(
            (
                number("no."),
                name_of("kernel"),
                Column("kernel", whole=True),
                roles(),
                number("count", rank=2),
                number("first"),
                number("second"),
                speedups("1st/2nd (95 %)"),
                Column("better", rank=1),
            ),
            [_kernel(place, task) for place, task in _by_difference(found["tasks"])],
        )
        for side in ("first", "second"):
            if only := found[f"only_{side}"]:
                write_text(f"only in the {side}: {', '.join(only)}")
        print()
        for word in ("untuned", "tuned"):
            write_text(_step(word, found["step"][word]))
    elif found["kind"] == "profile":
        operator, role, *figures = texts.ROLE_COLUMNS
        ranks = dict(zip(figures, (0, 0, 0, 1, 1, 1), strict=True))
        write_table(
            (Column(operator), Column(role), *(number(one, ranks[one]) for one in figures)),
            texts.role_rows(found),
        )
    else:
        write_table(
            (
                Column("point"),
                Column("first", rank=1, least=16),
                Column("second", rank=1, least=16),
                *(
                    number(name, rank)
                    for name, rank in zip(
                        texts.POINT_COLUMNS[3:], (2, 2, 0, 0, 3, 3, 0, 0), strict=True
                    )
                ),
            ),
            texts.point_rows(found),
        )
        if found["fronts"] is not None:
            print()
            side_of, *figures = texts.FRONT_COLUMNS
            write_table((Column(side_of), *map(number, figures)), texts.front_rows(found))
            reference = found["fronts"]["reference"]
            write_text(
                f"hypervolumes are of logarithms, below {reference['time_s']:.4g} s and "
                f"{reference['energy_j']:.4g} J, the worst of both fronts"
            )
    if found["settings"]:
        print()
        rows = [
            (
                one["name"],
                *("-" if one[side] is None else str(one[side]) for side in ("first", "second")),
            )
            for one in found["settings"]
        ]
        write_table(
            (
                Column("what differs"),
                Column("first", least=16, prose=True),
                Column("second", least=16, prose=True),
            ),
            rows,
        )


def _by_difference(tasks: Sequence[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Returns kernels with their numbers, those with the largest difference in a step first."""

    def differs_ms(task: dict[str, Any]) -> float:
        both = task["first_ms"], task["second_ms"]
        return -1.0 if None in both else float(task["count"] * abs(both[0] - both[1]))

    return sorted(enumerate(tasks, start=1), key=lambda one: -differs_ms(one[1]))


def _kernel(place: int, task: dict[str, Any]) -> tuple[str, ...]:
    from autotune.workloads import short_name

    first, second = (
        time_text(None if task[f"{side}_ms"] is None else task[f"{side}_ms"] / 1e3)
        for side in ("first", "second")
    )
    return (
        str(place), short_name(task["spec"]), task["spec"], task["role"], str(task["count"]), first, second,
        speedup_text(task["ratio"], task["ci"]), task["verdict"],
    )  # fmt: skip


def _step(word: str, step: dict[str, Any]) -> str:
    if step["ratio"] is None:
        return f"step, {word}: not every kernel has a time"
    ends = step["ci"]
    interval = f" ({ends[0]:.3g} to {ends[1]:.3g}): " if ends else ": "
    better = {"first": "the first is better", "second": "the second is better", "tie": "a tie"}
    times = " and ".join(time_text(step[f"{side}_ms"] / 1e3) for side in ("first", "second"))
    return (
        f"step, {word}: {times}, first / second "
        f"{step['ratio']:.3g}{interval}{better.get(step['verdict'], 'no interval is known')}"
    )


__all__ = ["compare", "show"]
