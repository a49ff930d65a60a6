"""`autotune breakdown`: where the time of a tuned step goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import completion, run_path
from autotune.cli.shared import (
    Column,
    number,
    time_text,
    with_wide,
    write_json,
    write_next,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from autotune.records import Share

_BAR = 40


@with_wide
def breakdown(
    run: Annotated[
        Path,
        typer.Argument(
            parser=run_path("kernels"),
            autocompletion=completion.runs,
            metavar="RUN",
            help="Folder of a finished run.",
            show_default=False,
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Shows a step's kernel time by role and by operator, and the time of data movement alone.

    Data movement is padding, packing, copying and concatenation. Inside a kernel it is measured separately,
    by the same program without its arithmetic, and subtracted from the other lines.

    \b
    Example:
      autotune breakdown logs/20260102T030405Z-cpu-squeezenet1-1
    """
    from autotune.jobs.provenance import Work
    from autotune.records import read_run, step_shares

    made = read_run(run)
    made.ended()
    result = made.kernel_result()
    shares = step_shares(result)
    total = sum(share.ms for share in shares)
    untimed = [task.name for task in result.tasks if task.tuned_ms is None]
    device = str(result.device.get("name", "an unknown device"))
    if json:
        write_json(
            {
                "run": str(run),
                "target": result.target,
                "device": result.device,
                "stand_in": result.stand_in,
                "kernels_without_a_time": untimed,
                "step_ms": total,
                "shares": [
                    {"role": s.role, "operator": s.operator, "ms": s.ms, "share": s.ms / total}
                    for s in shares
                ],
            },
            Work.of_run(run, made.about),
        )
        write_next("report", run)
        return
    stand_in = f", a STAND-IN for {result.target}" if result.stand_in else ""
    write_text(f"{time_text(total / 1e3)} of kernels in a step, as tuned on {device}{stand_in}")
    if untimed:
        write_text(f"left out (no valid time): {', '.join(untimed)}")
    print()
    write_table(
        _columns("role"),
        [_row(s.role, s.ms, total) for s in _summed(shares)],
    )
    print()
    write_table(
        _columns("role and operator"),
        [_row(f"{s.role} {s.operator}".strip(), s.ms, total) for s in shares],
    )
    write_next("report", run)


def _summed(shares: list[Share]) -> list[Share]:
    """Returns the shares summed by role, largest first."""
    from autotune.records import Share

    sums: dict[str, float] = {}
    for share in shares:
        sums[share.role] = sums.get(share.role, 0.0) + share.ms
    return sorted((Share(role, "", ms) for role, ms in sums.items()), key=lambda s: -s.ms)


def _columns(name: str) -> tuple[Column, ...]:
    return Column(name, least=20), number("time"), number("share"), Column("", rank=1)


def _row(name: str, ms: float, total: float) -> tuple[str, str, str, str]:
    eighths = round(8 * _BAR * ms / total)
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    return name, time_text(ms / 1e3), f"{100 * ms / total:.1f} %", bar
