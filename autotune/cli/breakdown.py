"""`autotune breakdown`: where the time of a tuned step goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autotune.records import Share

_BAR = 40


def breakdown(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Shows the share of a step's kernel time by role and by operator, and what moving data alone takes.

    Data movement is padding, packing, copies and joins. Inside a kernel it is measured apart, by the same
    program without its arithmetic; it is taken out of the other lines.

    \b
    Example:
      autotune breakdown logs/20260102T030405Z-cpu-squeezenet1-1
    """
    from autotune.cli.output import write_json, write_table
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
            }
        )
        return
    stand_in = f", a STAND-IN for {result.target}" if result.stand_in else ""
    print(f"{total:.4g} ms of kernels in a step, as tuned on {device}{stand_in}")
    if untimed:
        print(f"left out, for want of a valid time: {', '.join(untimed)}")
    print()
    write_table(
        ("role", "ms", "share", ""),
        [_row(s.role, s.ms, total) for s in _summed(shares)],
        numbers=("ms", "share"),
    )
    print()
    write_table(
        ("role and operator", "ms", "share", ""),
        [_row(f"{s.role} {s.operator}".strip(), s.ms, total) for s in shares],
        numbers=("ms", "share"),
    )


def _summed(shares: list[Share]) -> list[Share]:
    """The shares by role alone, largest first."""
    from autotune.records import Share

    sums: dict[str, float] = {}
    for share in shares:
        sums[share.role] = sums.get(share.role, 0.0) + share.ms
    return sorted((Share(role, "", ms) for role, ms in sums.items()), key=lambda s: -s.ms)


def _row(name: str, ms: float, total: float) -> tuple[str, str, str, str]:
    eighths = round(8 * _BAR * ms / total)
    bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
    return name, f"{ms:.3g}", f"{100 * ms / total:.1f} %", bar
