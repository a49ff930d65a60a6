"""The page of `autotune cpu-config compare`: two configurations measured in interleaved blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autotune.report.pages.about import device_name, emulated_notice, request_section
from autotune.report.pages.html_page import download_table, page, table
from autotune.report.pages.searches import over_search
from autotune.report.plots import Axis, Ratio, Series, charts, intervals
from autotune.studies.space import compared_text, configuration_text

_COLUMNS = ("run", "configuration", "status", "s a step", "J a step", "C")


def comparison_page(
    about: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any] | None,
    unfinished: str = "",
) -> str:
    """Returns a page for a comparison.

    Args:
        about: Content of `run.json`.
        events: Its events.
        result: Content of `result.json`; None if it has not ended.
        unfinished: Notice that it has not ended; empty if it has.
    """
    request, device = about["request"], about.get("device") or {}
    names = [str(request["first"]), str(request["second"])]
    runs = [e for e in events if e["event"] == "run"]
    sections = [
        *([("Which is better", _verdict(names, result))] if result else []),
        ("Every block", _blocks(names, runs, request["by"])),
        *over_search([{**run, "event": "trial"} for run in runs]),
        ("Every run", _runs(names, runs)),
        request_section(about, result),
    ]
    title = f"{names[0]} against {names[1]} by {request['by']} on {device_name(device)}"
    return page(title, [unfinished, emulated_notice(device)], sections)


def _verdict(names: Sequence[str], result: Mapping[str, Any]) -> str:
    shown = compared_text(names, result)
    rows = [
        (name, configuration_text(result[side]), str(result[side].get("threads") or "-"))
        for name, side in zip(names, ("first", "second"), strict=True)
    ]
    what = f"{result['by']}, {names[0]} over {names[1]}"
    note = f"<p>{escape(shown)}, after {result['blocks']} blocks.</p>"
    ratio = Ratio("ratio", result["ratio"], result["ci"], f"{shown}.")
    return (
        table(("name", "configuration", "threads"), rows, ("threads",))
        + note
        + intervals("Ratio of the two configurations", what, [ratio])
    )


def _blocks(names: Sequence[str], runs: Sequence[Mapping[str, Any]], by: str) -> str:
    field, unit = ("time_s", "s a step") if by == "time" else ("energy_j", "J a step")
    series = []
    for side, name in enumerate(names):
        found = [
            run["figures"][field]
            for run in runs
            if run["side"] == side and run["figures"] and run["figures"][field] is not None
        ]
        if found:
            series.append(Series(name, list(range(1, len(found) + 1)), found))
    if not series:
        return "<p>Nothing was measured.</p>"
    x = Axis.over("block", [at for one in series for at in one.xs])
    y = Axis.over(unit, [value for one in series for value in one.ys])
    return charts.lines("Both configurations, block by block", x, y, series)


def _runs(names: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            number, names[run["side"]], run["status"],
            *((run["figures"] or {}).get(name) for name in ("time_s", "energy_j", "celsius")),
        )
        for number, run in enumerate(runs, start=1)
    ]  # fmt: skip
    shown = [
        (str(n), name, status, *("-" if v is None else f"{v:.4g}" for v in figures))
        for n, name, status, *figures in rows
    ]
    return table(_COLUMNS, shown, ("run", *_COLUMNS[3:])) + download_table(
        "runs.csv", _COLUMNS, rows
    )
