"""`autotune compare`: two runs of one kind beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.output import write_table


def compare(
    first: Annotated[Path, typer.Argument(help="Folder of a run that has ended.")],
    second: Annotated[Path, typer.Argument(help="Folder of another one of the same command.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write both as one HTML page, too.")
    ] = None,
) -> int:
    """Shows two runs of kernels, joint, cpu-config or profile beside each other: figures, ratios, what differs.

    Nothing is measured: the runs are as they were, at different times. Where that matters, `autotune cpu-config
    compare` measures two configurations in turns.

    \b
    Examples:
      autotune compare logs/20260102T030405Z-cpu-lenet logs/20260103T030405Z-cpu-lenet
      autotune compare logs/20260102T030405Z-joint-sm8150 logs/20260103T030405Z-joint-sm8150 --html both.html
    """
    from autotune.cli.report import write_page
    from autotune.reading import reading
    from autotune.records import read_run
    from autotune.report.compare import compared
    from autotune.report.compare_page import compare_page

    runs = read_run(first), read_run(second)
    with reading(f"{first} or {second}"):
        found = compared(*runs)
        page = compare_page(found, *runs) if html is not None else ""
        if not json:
            show(found)
    if html is not None:
        write_page(html, page)
    if json:
        import json as text

        print(text.dumps(found, indent=2))
        return 0
    if html is not None:
        print(f"page: {html}")
    return 0


def show(found: dict[str, Any]) -> None:
    """Prints two runs beside each other."""
    from autotune.report import compare_text as texts

    for side in ("first", "second"):
        one = found[side]
        trials = f"{one['trials']} trials " if one["trials"] is not None else ""
        print(f"{side + ':':<8}{one['run']}: {trials}on {one['device']}")
    for warning in found["warnings"]:
        print(f"warning: {warning}")
    print()
    if found["kind"] == "kernels":
        numbers = ("no.", "count", "first ms", "second ms", "first / second")
        write_table(texts.KERNEL_COLUMNS, texts.kernel_rows(found), numbers=numbers, whole=True)
        for side in ("first", "second"):
            if only := found[f"only_{side}"]:
                print(f"only in the {side}: {', '.join(only)}")
        print()
        for word in ("untuned", "tuned"):
            print(_step(word, found["step"][word]))
    elif found["kind"] == "profile":
        heads = texts.ROLE_COLUMNS
        write_table(heads, texts.role_rows(found), numbers=heads[2:], whole=True)
    else:
        points = texts.POINT_COLUMNS
        write_table(points, texts.point_rows(found), numbers=points[3:], whole=True)
        if found["fronts"] is not None:
            print()
            fronts = texts.FRONT_COLUMNS
            write_table(fronts, texts.front_rows(found), numbers=fronts[1:], whole=True)
            reference = found["fronts"]["reference"]
            print(
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
        write_table(("what differs", "first", "second"), rows, whole=True)


def _step(word: str, step: dict[str, Any]) -> str:
    if step["ratio"] is None:
        return f"step, {word}: not every kernel has a time"
    ends = step["ci"]
    told = f" ({ends[0]:.3g} to {ends[1]:.3g}): " if ends else ": "
    better = {"first": "the first is better", "second": "the second is better", "tie": "a tie"}
    return (
        f"step, {word}: {step['first_ms']:.4g} and {step['second_ms']:.4g} ms, first / second "
        f"{step['ratio']:.3g}{told}{better.get(step['verdict'], 'no interval is known')}"
    )


__all__ = ["compare", "show"]
