"""`autotune step --plan`: the step that a joint search planned, on its device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.cli.shared import (
    Column,
    number,
    time_text,
    times_text,
    write_json,
    write_next,
    write_table,
    write_text,
)
from autotune.jobs.steps import measured_plan
from autotune.studies.space import configuration_text, emulated_text, interval_text, moving_text


def show_plan(
    path: Path,
    runs: Sequence[Path],
    device: str | None,
    ssh: Sequence[str],
    least_seconds: float | None,
    *,
    as_json: bool,
) -> int:
    """Measures a plan, and prints the result; see `measured_plan`."""

    def show(result: dict[str, Any]) -> None:
        (write_json if as_json else _show)(result)
        if result["emulated"]:
            write_next(
                "export", "--plan", path, "--format", "c", "--allow-stand-in", "--out", "exported"
            )
        else:
            write_next("cpu-config", "apply", path)

    measured_plan(path, runs, device, ssh, least_seconds, show)
    return 0


def _show(result: dict[str, Any]) -> None:
    rows = []
    for name, word in (
        ("measured", "the plan"),
        ("planned", "in the search"),
        ("system", "the default cores and clocks"),
    ):
        if (found := result[name]) is None:
            continue
        ci = found.get("ci") or {}
        joules, size = found.get("energy_j"), found.get("memory_bytes")
        rows.append(
            (
                word,
                time_text(found["time_s"]),
                times_text(ci.get("time_s")),
                "-" if joules is None else f"{joules:.4g}",
                interval_text(ci.get("energy_j")),
                "-" if size is None else f"{size / 2**20:.1f}",
            )
        )
    for configuration in result["settings"]:
        write_text(configuration_text(configuration))
    if result["gpu_calls"]:
        moving = result["data_movement"]
        moved = f": in a step that is traced, {moving_text(moving)}" if moving else ""
        write_text(f"{result['gpu_calls']} calls on the GPU{moved}")
    if result["changes"]:
        write_text(f"{result['changes']} changes in a step")
    write_table(
        (
            Column("kernels of the plan"),
            number("a step"),
            Column("time, 95 %", rank=2),
            number("J a step"),
            Column("J, 95 %", rank=3),
            number("MiB", rank=1),
        ),
        rows,
    )
    for mark in result["measured"]["marks"]:
        write_text(f"doubtful: {mark}")
    if result["emulated"]:
        write_text(emulated_text(result["emulated"]))


__all__ = ["show_plan"]
