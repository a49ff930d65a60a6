"""The result of a search for a CPU configuration, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.cli.shared import Column, number, time_text, times_text, write_table, write_text
from autotune.studies.space import (
    DEFAULT_POINT,
    GAINS,
    configuration_text,
    doubts,
    emulated_text,
    exhaustive_text,
    fronts_text,
    gain_text,
    joules_text,
    placement_texts,
    ratio_text,
)


def show(found: dict[str, Any], folder: Path) -> None:
    """Prints a result as a table."""
    rows = []
    best = found["best"]
    shown = [("best", best), *found["points"].items(), (DEFAULT_POINT, found["default"])]
    for name, point in shown:
        if point is not None:
            rows.append((name.replace("_", " "), *_row(point)))
    write_table(
        (
            Column("point"),
            Column("configuration", least=22),
            number("threads", rank=2),
            number("a step"),
            Column("time, 95 %", rank=1),
            number("J a step"),
            Column("J, 95 %", rank=3),
            number("C", rank=4),
        ),
        rows,
    )
    for name in GAINS:
        against = (found.get("against_default") or {}).get(name)
        if against:
            write_text(gain_text(name, "the best", "the default", against))
    _show_sequential(found.get("sequential"))
    if (placement := found.get("placement")) is not None:
        write_text("\n".join(placement_texts(placement)))
    if best and best["rails"]:
        errors = ", ".join(f"{name} {joules:.4g}" for name, joules in best["rails"].items())
        write_text(f"J a step of the best, by rail: {errors}")
    for warning in found.get("warnings", ()):
        write_text(f"warning: {warning}")
    for name, mark in doubts(shown, found["marks"]):
        write_text(f"doubtful: {name}: {mark}")
    if (plan := found.get("per_operator")) is not None:
        _show_plan(plan)
    if (whole := found.get("exhaustive")) is not None:
        write_text(exhaustive_text(whole, found["space"]))
    error = found["model_error"].get("left_out", {})
    if error:
        errors = ", ".join(f"{name} {value:.1%}" for name, value in error.items())
        write_text(f"model error, leave-one-out (median): {errors}")
    write_text(
        f"{found['n_measured']} of {found['space']} configurations measured, {found['n_failed']} without a result; "
        f"run folder: {folder}"
    )
    if found["emulated"]:
        write_text(emulated_text(found["device"]["emulated"]))


def _show_sequential(other: dict[str, Any] | None) -> None:
    """Prints the gain of a joint search over tuning kernels first and choosing cores afterwards."""
    if other is None:
        return
    for name in GAINS:
        if (ratio := other[name]) is not None:
            write_text(gain_text(name, "joint", "tuning kernels first, then cores", ratio))
    if (fronts := other["front"]) is not None:
        write_text(fronts_text(fronts))


def _row(point: dict[str, Any]) -> tuple[str, ...]:
    ci = point["ci"] or {}
    return (
        configuration_text(point),
        str(point.get("threads", "")),
        time_text(point["time_s"]),
        times_text(ci.get("time_s")),
        "-" if point["energy_j"] is None else f"{point['energy_j']:.4g}",
        joules_text(point),
        "-" if point["celsius"] is None else f"{point['celsius']:.1f}",
    )


def _show_plan(plan: dict[str, Any]) -> None:
    for name in ("phases", "operators"):
        found = plan[name]
        if found is None:
            write_text(f"a plan per {name[:-1]} keeps no limit")
        elif not found["changes"]:
            write_text(
                f"per {name[:-1]}: nothing beats the best single configuration, changes counted"
            )
        else:
            write_text(
                f"per {name[:-1]}: {len(found['changes'])} changes a step, predicted gain "
                f"{found['foretold_gain']:.3f} over the best single configuration"
            )
    if (measured := plan["measured"]) is not None:
        write_text(f"the plan per operator, measured: gain {ratio_text(measured)}")
        if measured["verdict"] != "better":
            write_text("  stay with the single configuration")
