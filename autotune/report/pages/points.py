"""Points of a search over cores and clocks: the results, time against energy, heat maps of cores and clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autotune.report.pages.html_page import table
from autotune.report.plots import Axis, Point, charts
from autotune.studies.space import (
    DEFAULT_POINT,
    GAINS,
    configuration_text,
    doubts,
    exhaustive_text,
    gain_text,
    interval_text,
    joules_text,
)

NAMES = {
    "best": "best",
    "fastest": "fastest",
    "least_energy": "least energy",
    "least_edp": "least energy-delay product",
    "knee": "knee of the front",
    "least_energy_in_time": "least energy in time",
}
"""Points of a result in words."""


def found_points(result: Mapping[str, Any]) -> str:
    """Returns a table of a result's points, and reasons to doubt them."""
    shown = {"best": result["best"], **result["points"]}
    rows = [(NAMES.get(name, name), *_row(p)) for name, p in shown.items() if p is not None]
    if result["default"]:
        rows.append((DEFAULT_POINT, *_row(result["default"])))
    numbers = ("s a step", "95 %", "J a step", "C")
    html = table(
        ("point", "configuration", "s a step", "95 %", "J a step", "95 %", "C"), rows, numbers
    )
    against = result.get("against_default") or {}
    for name in GAINS:
        if name in against:
            html += f"<p>{gain_text(name, 'the best', 'the default', against[name])}</p>"
    named = [(NAMES.get(name, name), point) for name, point in shown.items()]
    doubtful = doubts([*named, (DEFAULT_POINT, result["default"])], result.get("marks", ()))
    if (whole := result.get("exhaustive")) is not None:
        html += f"<p>{escape(exhaustive_text(whole, result['space']))}</p>"
    return (
        html
        + _rails(shown)
        + "".join(f"<p>Doubtful ({escape(name)}): {escape(mark)}</p>" for name, mark in doubtful)
    )


def _rails(shown: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Returns joules of each point by rail, for a meter with several rails."""
    points = {name: p for name, p in shown.items() if p is not None and p.get("rails")}
    names = list(dict.fromkeys(rail for p in points.values() for rail in p["rails"]))
    if not names:
        return ""
    rows = [
        (
            NAMES.get(name, name),
            *(f"{p['rails'][rail]:.4g}" if rail in p["rails"] else "-" for rail in names),
        )
        for name, p in points.items()
    ]
    return "<p>Joules a step, by rail:</p>" + table(("point", *names), rows, names)


def _row(point: Mapping[str, Any]) -> tuple[str, ...]:
    ci = point.get("ci") or {}
    joules, celsius = point.get("energy_j"), point.get("celsius")
    return (
        configuration_text(point),
        f"{point['time_s']:.4g}",
        interval_text(ci.get("time_s")),
        "-" if joules is None else f"{joules:.4g}",
        joules_text(point),
        "-" if celsius is None else f"{celsius:.1f}",
    )


def front_plot(
    trials: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Plots time against energy for all measurements, with the front and the names of its plans.

    Args:
        trials: Trials.
        result: The result.
        others: Trials of another search that it is compared with.
    """
    known = [t for t in trials if t["figures"] and (t["figures"]["energy_j"] or 0) > 0]
    if not known:
        return "<p>No joules were measured.</p>"
    points = [
        Point(
            t["figures"]["time_s"],
            t["figures"]["energy_j"],
            f"{configuration_text(t['configuration'])}: {t['figures']['time_s']:.4g} s, "
            f"{t['figures']['energy_j']:.4g} J",
        )
        for t in known
    ]
    plans = result.get("plans") or {}
    front = []
    for number, p in enumerate(result["pareto"], start=1):
        if p["energy_j"] > 0:
            plan = f"pareto-{number}" if f"pareto-{number}" in plans else ""
            label = f"{plan}{': ' if plan else ''}{configuration_text(p)}"
            front.append(Point(p["time_s"], p["energy_j"], label, True, plan))
    own = result["default"]
    if own and (own["energy_j"] or 0) > 0:
        points.append(
            Point(
                own["time_s"],
                own["energy_j"],
                "the default: all cores, clocks free",
                True,
                DEFAULT_POINT,
                2,
            )
        )
    beside = [
        Point(
            t["figures"]["time_s"], t["figures"]["energy_j"],
            f"kernels first: {configuration_text(t['configuration'])}", kind=3,
        )
        for t in others
        if t["figures"] and (t["figures"]["energy_j"] or 0) > 0
    ]  # fmt: skip
    every = [*beside, *points, *front]
    x = Axis.over("seconds a step", [p.x for p in every], logarithmic=True)
    y = Axis.over("joules a step, above idle", [p.y for p in every], logarithmic=True)
    joined = [("front", front)]
    if beside:
        joined = [("a trial", []), ("front", front), (DEFAULT_POINT, []), ("kernels first", [])]
    return charts.scatter("Time and energy of a step", x, y, every, joined)


def heat_maps(trials: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns heat maps of cores x clocks for each cluster alone, if there is something to compare.

    Several settings may share a cell, because they differ in threads or schedules. The least value is shown.
    """
    sections = []
    names = list(trials[0]["configuration"]["clusters"]) if trials else []
    for name in names:
        alone: dict[tuple[int, int], list[Mapping[str, Any]]] = {}
        for trial in trials:
            clusters = trial["configuration"]["clusters"]
            if trial["figures"] and all(
                bool(c["cores"]) == (other == name) for other, c in clusters.items()
            ):
                place = clusters[name]["cores"], clusters[name]["khz"] or 0
                alone.setdefault(place, []).append(trial["figures"])
        if len(alone) < 3:
            continue
        cores = sorted({n for n, _ in alone})
        clocks = sorted({k for _, k in alone})
        for field, unit in (("time_s", "s"), ("energy_j", "J")):
            cells = [
                [
                    min((f[field] for f in alone.get((n, k), ()) if f[field]), default=None)
                    for k in clocks
                ]
                for n in cores
            ]
            if not any(value for row in cells for value in row):
                continue
            sections.append(
                (
                    f"{name} alone: {'seconds' if unit == 's' else 'joules'} a step",
                    charts.heat_map(
                        f"{name} alone: {'seconds' if unit == 's' else 'joules'} a step",
                        [f"{k / 1000:.0f}" if k else "free" for k in clocks],
                        [str(n) for n in cores],
                        cells,
                        column_label="MHz",
                        row_label="cores",
                        unit=unit,
                    ),
                )
            )
    if not sections:
        note = "<p>No cluster was measured alone in three configurations, which a map of them needs.</p>"
        sections.append(("Cores and clocks", note))
    return sections
