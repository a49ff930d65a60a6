"""The page that compares two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autotune.records import Run
from autotune.report.comparing.text import (
    FRONT_COLUMNS,
    KERNEL_COLUMNS,
    KERNEL_NARROW,
    POINT_COLUMNS,
    ROLE_COLUMNS,
    front_rows,
    kernel_rows,
    ms_text,
    point_rows,
    role_rows,
)
from autotune.report.pages import (
    download,
    facts,
    histories,
    page,
    role_times,
    step_history,
    step_lines,
    table,
)
from autotune.report.plots import Axis, Point, Ratio, charts, intervals, stacked
from autotune.studies.space import configuration_text

_SIDES = ("first", "second")


def compare_page(found: Mapping[str, Any], first: Run, second: Run, command: str = "") -> str:
    """Returns a page that compares two runs.

    Args:
        found: The result of `compared`.
        first: The first run.
        second: The second run.
        command: The command line that compared them; may be empty.
    """
    of_kind = {"kernels": _kernels, "profile": _profiles}.get(found["kind"], _searches)
    sections = [
        ("The runs", _runs(found, command)),
        *of_kind(found, (first, second)),
        ("Differences in the requests", _settings(found["settings"])),
        ("The data", download("comparison.json", dict(found))),
    ]
    batch = f", batch {found['batch']}" if found["batch"] else ""
    title = f"Two runs of {found['kind']}: {found['workload'] or 'a program'}{batch}"
    return page(title, found["warnings"], sections)


def _runs(found: Mapping[str, Any], command: str) -> str:
    rows = []
    for side in _SIDES:
        run = found[side]
        known = (
            f"{run['trials']} trials" if run["trials"] is not None else "",
            f"on {run['device']}",
        )
        rows.append((side, ", ".join(filter(None, (run["run"], *known)))))
        rows.append((f"{side}: command line", run["command"]))
    rows.append(("compared by", command))
    return (
        facts(rows)
        + "<p>Ratios are of the first run over the second: above 1 the second is better.</p>"
    )


def _settings(settings: Sequence[Mapping[str, Any]]) -> str:
    if not settings:
        return "<p>Nothing.</p>"
    rows = [
        (one["name"], *("-" if one[side] is None else str(one[side]) for side in _SIDES))
        for one in settings
    ]
    return table(("setting", *_SIDES), rows)


def _kernels(found: Mapping[str, Any], runs: Sequence[Run]) -> list[tuple[str, str]]:
    results = [run.kernel_result() for run in runs]
    names = list(dict.fromkeys(role for r in results for role in role_times(r, tuned=False)))
    rows = []
    for side, result in zip(_SIDES, results, strict=True):
        for word, tuned in (("untuned", False), ("tuned", True)):
            times = role_times(result, tuned=tuned)
            rows.append((f"{side}, {word}", [times.get(name, 0.0) for name in names]))
    lines = []
    for side, run, result in zip(_SIDES, runs, results, strict=True):
        counts = {task.name: task.count for task in result.tasks}
        if steps := step_history(histories(run.events), counts):
            lines.append(step_lines(steps, result.trials, side))
    sections = [("A training step", _step(found))]
    if lines:
        x = Axis("trials", 0.0, max(1, *(result.trials for result in results)))
        y = Axis.over("ms a step", [value for one in lines for value in one.ys], logarithmic=True)
        plot = charts.lines("Time of a step with the best kernels so far", x, y, lines)
        sections.append(("Search history", plot))
    ratios = [
        Ratio(
            f"{number} {task['operator']} {task['role']}",
            task["ratio"],
            task["ci"],
            f"{number} {task['operator']} {task['role']}: {task['ratio']:.3g} times as long in the first.",
        )
        for number, task in enumerate(found["tasks"], start=1)
        if task["ratio"]
    ]
    unmatched = _only(found)
    return [
        *sections,
        ("Time of a step by role", stacked("Time of a step by role", "ms a step", names, rows)),
        ("Each kernel", intervals("Time of each kernel", "first / second, tuned", ratios)
         + unmatched + table(KERNEL_COLUMNS, kernel_rows(found), KERNEL_COLUMNS[:1] + KERNEL_COLUMNS[3:8],
                        KERNEL_NARROW)),
    ]  # fmt: skip


def _step(found: Mapping[str, Any]) -> str:
    rows = []
    for word in ("untuned", "tuned"):
        one = found["step"][word]
        rows.append(
            (
                word, *(ms_text(one[f"{side}_ms"]) for side in _SIDES), _number(one["ratio"]),
                f"{one['ci'][0]:.3g} to {one['ci'][1]:.3g}" if one["ci"] else "", one["verdict"],
            )
        )  # fmt: skip
    columns = ("kernels", "first", "second", "first / second", "95 %", "better")
    return table(columns, rows, columns[1:5]) + (
        "<p>Of the kernels that both runs have. The runs were not measured side by side: an interval has the noise "
        "within each run only.</p>"
    )


def _only(found: Mapping[str, Any]) -> str:
    return "".join(
        f"<p>Only in the {side} run: {escape(', '.join(found[f'only_{side}']))}</p>"
        for side in _SIDES
        if found[f"only_{side}"]
    )


def _searches(found: Mapping[str, Any], runs: Sequence[Run]) -> list[tuple[str, str]]:
    numbers = (
        "s first",
        "s second",
        "ratio s",
        "s, 95 %",
        "J first",
        "J second",
        "ratio J",
        "J, 95 %",
    )
    sections = [("Named points", table(POINT_COLUMNS, point_rows(found), numbers))]
    ratios = [
        Ratio(
            f"{point['name'].replace('_', ' ')}, {word}", point[name]["ratio"], point[name]["ci"],
            f"{point['name']}, {word}: {point[name]['ratio']:.3g} times as much in the first.",
        )
        for point in found["points"]
        for name, word in (("time_s", "time"), ("energy_j", "energy"))
        if point[name] is not None
    ]  # fmt: skip
    if ratios:
        sections.append(("Ratios", intervals("Ratios of named points", "first / second", ratios)))
    if found["fronts"] is not None:
        sections.append(("Fronts of time and energy", _fronts(found, runs)))
    return sections


def _fronts(found: Mapping[str, Any], runs: Sequence[Run]) -> str:
    joined = []
    for kind, (side, run) in enumerate(zip(_SIDES, runs, strict=True)):
        points = [
            Point(p["time_s"], p["energy_j"], f"{side}: {configuration_text(p)}", True, "", kind)
            for p in (run.result or {})["pareto"]
            if (p["energy_j"] or 0) > 0
        ]
        joined.append((side, points))
    every = [point for _, points in joined for point in points]
    x = Axis.over("seconds a step", [p.x for p in every], logarithmic=True)
    y = Axis.over("joules a step, above idle", [p.y for p in every], logarithmic=True)
    plot = charts.scatter("Both fronts", x, y, every, joined)
    return plot + table(FRONT_COLUMNS, front_rows(found), FRONT_COLUMNS[1:])


def _profiles(found: Mapping[str, Any], runs: Sequence[Run]) -> list[tuple[str, str]]:
    ratios = [
        Ratio(
            f"{row['operator']} {row['role']}", row["time_s"]["ratio"], None,
            f"{row['operator']} {row['role']}: {row['time_s']['ratio']:.3g} times as long in the first.",
        )
        for row in found["roles"]
        if row["time_s"]["ratio"]
    ]  # fmt: skip
    sections = []
    if ratios:
        plot = intervals("Time of each operator and role", "first / second", ratios)
        sections.append(("Time of each operator and role", plot))
    shown = table(ROLE_COLUMNS, role_rows(found), ROLE_COLUMNS[2:])
    return [*sections, ("Each operator and role, and the step", shown)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
