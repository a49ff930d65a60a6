"""Tables that compare two runs, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.studies.space import configuration_text
from autotune.times import time_text
from autotune.workloads import short_name

Row = tuple[str, ...]
KERNEL_COLUMNS = (
    "no.", "kernel", "role", "count", "first", "second", "first / second", "95 %", "better",
)  # fmt: skip
KERNEL_NARROW = ("no.", "kernel", "first", "second", "first / second")
"""Of these, what a narrow screen shows."""
POINT_COLUMNS = (
    "point", "first", "second", "s first", "s second", "ratio s", "s, 95 %", "J first", "J second",
    "ratio J", "J, 95 %",
)  # fmt: skip
FRONT_COLUMNS = ("front", "points", "hypervolume", "% the other equals or beats")
ROLE_COLUMNS = (
    "operator", "role", "time first", "time second", "ratio of times", "mJ first", "mJ second", "ratio mJ",
)  # fmt: skip


def kernel_rows(found: Mapping[str, Any]) -> list[Row]:
    """Returns a row for each kernel that both runs have."""
    return [
        (
            str(number), short_name(task["spec"]), task["role"], str(task["count"]), ms_text(task["first_ms"]),
            ms_text(task["second_ms"]), _number(task["ratio"]), _ends(task["ci"]), task["verdict"],
        )
        for number, task in enumerate(found["tasks"], start=1)
    ]  # fmt: skip


def point_rows(found: Mapping[str, Any]) -> list[Row]:
    """Returns a row for each named point that both searches have."""
    rows = []
    for point in found["points"]:
        cells = [
            point["name"].replace("_", " "),
            *(configuration_text(point[side]) for side in ("first", "second")),
        ]
        for name in ("time_s", "energy_j"):
            ratio = point[name] or {"ratio": None, "ci": None}
            cells += [
                *(_number(point[side].get(name)) for side in ("first", "second")),
                _number(ratio["ratio"]),
                _ends(ratio["ci"]),
            ]
        rows.append(tuple(cells))
    return rows


def front_rows(found: Mapping[str, Any]) -> list[Row]:
    """Returns rows for both fronts; none if a search has no joules."""
    fronts = found["fronts"]
    if fronts is None:
        return []
    return [
        (
            side, str(fronts["points"][side]), f"{fronts['hypervolume'][side]:.4g}",
            f"{100 * fronts['dominated'][side]:.0f}",
        )
        for side in ("first", "second")
    ]  # fmt: skip


def role_rows(found: Mapping[str, Any]) -> list[Row]:
    """Returns a row for each operator and role of two profiles, and for the step."""
    rows = [
        *((row["operator"], row["role"], row) for row in found["roles"]),
        ("the step", "", found["step"]),
    ]
    return [
        (
            operator, role,
            *(
                _number(value)
                if name == "ratio"
                else ms_text(value and 1e3 * value)
                if field == "time_s"
                else _number(value and 1e3 * value)
                for field in ("time_s", "energy_j")
                for name, value in pair[field].items()
            ),
        )
        for operator, role, pair in rows
    ]  # fmt: skip


def ms_text(value: float | None) -> str:
    """Returns a time in milliseconds as text, in the most readable unit."""
    return time_text(None if value is None else value / 1e3)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _ends(ends: list[float] | None) -> str:
    return f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else ""
