"""The result of a search for a CPU configuration, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.cli.output import write_json, write_table
from autotune.studies.texts import (
    configuration_text,
    doubts,
    exhaustive_text,
    fronts_text,
    interval_text,
    joules_text,
    placement_texts,
    ratio_text,
)


def show(found: dict[str, Any], folder: Path, *, as_json: bool) -> None:
    """Prints a result as a table, or as JSON."""
    if as_json:
        write_json(found)
        return
    rows = []
    best = found["best"]
    shown = [("best", best), *found["points"].items(), ("system's own", found["default"])]
    for name, point in shown:
        if point is not None:
            rows.append((name.replace("_", " "), *_row(point)))
    write_table(
        ("point", "configuration", "threads", "s a step", "95 %", "J a step", "95 %", "C"),
        rows,
        numbers=("threads", "s a step", "J a step", "C"),
        whole=True,
    )
    for name, word in (("time_s", "time"), ("energy_j", "energy")):
        against = (found.get("against_default") or {}).get(name)
        if against:
            print(f"{word}, system's own / best: {ratio_text(against)}")
    _show_sequential(found.get("sequential"))
    if (placement := found.get("placement")) is not None:
        print("\n".join(placement_texts(placement)))
    if best and best["rails"]:
        told = ", ".join(f"{name} {joules:.4g}" for name, joules in best["rails"].items())
        print(f"J a step of the best, by rail: {told}")
    for warning in found.get("warnings", ()):
        print(f"warning: {warning}")
    for name, mark in doubts(shown, found["marks"]):
        print(f"doubtful: {name}: {mark}")
    if (plan := found.get("per_operator")) is not None:
        _show_plan(plan)
    if (whole := found.get("exhaustive")) is not None:
        print(exhaustive_text(whole, found["space"]))
    error = found["model_error"].get("left_out", {})
    if error:
        told = ", ".join(f"{name} {value:.1%}" for name, value in error.items())
        print(f"the models foretell a configuration that is left out within (median): {told}")
    print(
        f"{found['n_measured']} of {found['space']} configurations measured, {found['n_failed']} without a result; "
        f"run folder: {folder}"
    )
    if found["emulated"]:
        print(f"{found['device']['emulated']}: times and joules are a model's")


def _show_sequential(other: dict[str, Any] | None) -> None:
    """What a joint search gained over tuning kernels first and choosing cores afterwards."""
    if other is None:
        return
    for name, word in (("time_s", "time"), ("energy_j", "energy")):
        if (ratio := other[name]) is not None:
            print(f"{word}, kernels first and cores afterwards / joint: {ratio_text(ratio)}")
    if (fronts := other["front"]) is not None:
        print(fronts_text(fronts))


def _row(point: dict[str, Any]) -> tuple[str, ...]:
    ci = point["ci"] or {}
    return (
        configuration_text(point),
        str(point.get("threads", "")),
        f"{point['time_s']:.4g}",
        interval_text(ci.get("time_s")),
        "-" if point["energy_j"] is None else f"{point['energy_j']:.4g}",
        joules_text(point),
        "-" if point["celsius"] is None else f"{point['celsius']:.1f}",
    )


def _show_plan(plan: dict[str, Any]) -> None:
    for name in ("phases", "operators"):
        found = plan[name]
        if found is None:
            print(f"a plan per {name[:-1]} keeps no limit")
        elif not found["changes"]:
            print(f"per {name[:-1]}: nothing beats the best single configuration, changes counted")
        else:
            print(
                f"per {name[:-1]}: {len(found['changes'])} changes a step, foretold gain "
                f"{found['foretold_gain']:.3f} over the best single configuration"
            )
    if (measured := plan["measured"]) is not None:
        print(f"the plan per operator, measured: gain {ratio_text(measured)}")
        if measured["verdict"] != "better":
            print("  stay with the single configuration")
