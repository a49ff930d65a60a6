"""The page of a step's profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from autotune.report.pages.about import device_name, emulated_notice, request_section
from autotune.report.pages.html_page import download, download_table, page, table
from autotune.report.pages.samples import over_time
from autotune.report.plots import Axis, Band, Bar, Series, bars, charts, stacked
from autotune.times import time_text

_MOST_CALLS = 400
"""Calls of the first steps that are shown separately in a plot."""
_MOST_POINTS, _MOST_BORDERS = 3000, 150
_COLUMNS = (
    "time", "share", "mJ", "+/-", "W", "cores busy", "MHz", "C", "MB live", "MB resident",
)  # fmt: skip


def profile_page(
    folder: Path,
    about: Mapping[str, Any],
    result: Mapping[str, Any],
    timeline: Mapping[str, Any],
) -> str:
    """Returns a page for a profile.

    Args:
        folder: The run's folder, for the raw record.
        about: Content of `run.json`.
        result: Content of `result.json`.
        timeline: `{"times_s", "watts", "idle_w", "steps"}`: power over time, and for each step the beginnings of
            its calls and the end of the last one, in seconds since the workload was started.
    """
    record = folder / f"record-{1 if (folder / 'record-1.jsonl').is_file() else 0}.jsonl"
    sections = [
        ("A step", _step(result)),
        *_by_role(result["roles"]),
        ("By operator and role", _table(("operator", "role", "calls"), result["roles"])),
        *_power(result, timeline),
        *(over_time(record, result["device"], "over the run") if record.is_file() else ()),
        ("Every call, the longest first", _calls(result)),
        request_section(about, result, download("power.json", dict(timeline))),
    ]
    device = result["device"]
    title = f"Profile of {_workload(about)} on {device_name(device)}"
    return page(title, [emulated_notice(device)], sections)


def _step_options(about: Mapping[str, Any]) -> dict[str, Any]:
    step = about.get("request", {}).get("profile")
    if not isinstance(step, Mapping):
        return {}
    return {name: step[name] for name in ("model", "batch") if step.get(name) is not None}


def _workload(about: Mapping[str, Any]) -> str:
    step = _step_options(about)
    if step:
        return f"{step.get('model')}, batch {step.get('batch')}"
    return str(about.get("request", {}).get("profile") or "a step")


def _step(result: Mapping[str, Any]) -> str:
    joules, meter = result["energy_j"], result["meter"]
    cpus = result.get("cpus")
    clocks = [
        f"{name} {khz / 1000:.0f} MHz" for name, khz in (result.get("khz") or {}).items() if khz
    ]
    rows = [
        ("seconds", f"{result['step_s']:.4g}"),
        ("steps", str(result["steps"])),
        (
            "joules above idle",
            "-" if joules is None else f"{joules:.4g} +/- {result['deviation_j']:.2g}",
        ),
        ("meter", meter or "none"),
        ("intervals between new values", str(result["intervals"])),
        ("cores", ", ".join(map(str, cpus)) if cpus else "all, left to the system"),
        ("clocks", ", ".join(clocks) or "left to the system"),
        ("threads", str(result["threads"])),
        ("peak memory", f"{result['memory_bytes'] / 1e6:.4g} MB" if result["memory_bytes"] else "-"),
    ]  # fmt: skip
    marks = "".join(f"<p>Doubtful: {escape(mark)}</p>" for mark in result.get("marks", ()))
    return table(("", "a step"), rows) + marks


def _by_role(roles: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    def chart(label: str, field: str, deviation: str | None) -> str:
        known = [row for row in roles if row[field] is not None]
        return bars(
            f"{'Time' if deviation is None else 'Energy'} of a step by operator and role",
            label,
            [
                Bar(
                    f"{row['operator']} {row['role']}",
                    1e3 * row[field],
                    1e3 * (row[deviation] or 0.0) if deviation else 0.0,
                    f"{row['operator']} {row['role']}: {1e3 * row[field]:.4g} {label.split()[0]}",
                    faint=deviation is not None and not row["apart"],
                )
                for row in sorted(known, key=lambda row: -row[field])
            ],
        )

    names = list(dict.fromkeys(row["role"] for row in roles))
    shares = [("time, ms", "time_s"), ("energy, mJ", "energy_j")]
    rows = [
        (name, [sum(1e3 * (row[field] or 0.0) for row in roles if row["role"] == r) for r in names])
        for name, field in shares
        if any(row[field] is not None for row in roles)
    ]
    whole = [
        (
            name,
            [100 * max(value, 0.0) / (sum(max(v, 0.0) for v in values) or 1.0) for value in values],
        )
        for name, values in rows
    ]
    sections = [
        ("By role", stacked("Shares of a step by role", "% of a step", names, whole)),
        ("Time", chart("ms a step", "time_s", None)),
    ]
    if any(row["energy_j"] is not None for row in roles):
        note = "<p>Pale: too short to separate. Lines: one standard deviation to each side.</p>"
        sections.insert(
            0, ("Energy", chart("mJ a step, above idle", "energy_j", "deviation_j") + note)
        )
    return sections


def _power(result: Mapping[str, Any], timeline: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Plots power over the run with the steps' borders, and over its first steps with the calls' borders."""
    times, watts, steps = timeline["times_s"], timeline["watts"], timeline["steps"]
    if not times:
        return [("Power", "<p>No meter was read.</p>")]
    idle = timeline["idle_w"]
    y = Axis.over("watts", [*watts, *([idle] if idle is not None else [])])
    borders = [step[0] for step in steps] + ([steps[-1][-1]] if steps else [])
    every = max(1, len(times) // _MOST_POINTS)
    x = Axis.over("seconds", times)
    apart = len(borders) <= _MOST_BORDERS
    series = _watts(*_thinned(times, watts, every), idle, x)
    whole = charts.lines("Power over the run", x, y, series, borders=borders if apart else ())
    bordered = ", with the steps' borders" if apart else ""
    sections = [(f"Power over the run{bordered}", whole)]
    counted = steps[-result["steps"] :]
    calls = result["operators"]
    shown = counted[: max(1, _MOST_CALLS // max(1, len(calls)))]
    if not shown:
        return sections
    start, end = shown[0][0], shown[-1][-1]
    # A value is the mean since the previous one, so the first value after the end still describes the end.
    inside = [n for n, t in enumerate(times) if t >= start and (n == 0 or times[n - 1] <= end)]
    x = Axis("seconds", start, end)
    bands = [
        Band(begin, until, call["role"], f"{call['name']}: {time_text(until - begin)}")
        for step in shown
        for begin, until, call in zip(step, step[1:], calls, strict=False)
    ]
    y = Axis.over("watts", [watts[n] for n in inside])
    lined = _watts([times[n] for n in inside], [watts[n] for n in inside], None, x)
    plot = charts.lines(
        "Power over the first steps", x, y, lined, bands=bands, borders=[step[0] for step in shown]
    )
    plot += "<p>A call's name is shown where the pointer is on it.</p>"
    what = "step" if len(shown) == 1 else f"{len(shown)} steps"
    sections.append((f"Power over the first {what} that count, with the calls' borders", plot))
    return sections


def _thinned(
    times: Sequence[float], watts: Sequence[float], every: int
) -> tuple[list[float], list[float]]:
    """Returns one of every `every` values: their mean over time. A value is the mean since the previous one."""
    ends, means = [], []
    for first in range(0, len(times), every):
        end = min(first + every, len(times))
        spans = [times[n] - times[n - 1] if n else 0.0 for n in range(first, end)]
        values = watts[first:end]
        whole = sum(spans)
        joules = sum(span * value for span, value in zip(spans, values, strict=True))
        ends.append(times[end - 1])
        means.append(joules / whole if whole > 0 else sum(values) / len(values))
    return ends, means


def _watts(
    times: Sequence[float], watts: Sequence[float], idle: float | None, x: Axis
) -> list[Series]:
    """Plots power as steps, because a value is the mean since the previous one, and the idle power."""
    xs: list[float] = []
    ys: list[float] = []
    for number, (time, value) in enumerate(zip(times, watts, strict=True)):
        before = times[number - 1] if number else x.low
        xs += [min(max(t, x.low), x.high) for t in (before, time)]
        ys += [value, value]
    series = [Series("power", xs, ys)]
    if idle is not None:
        series.append(Series("idle", [x.low, x.high], [idle, idle]))
    return series


def _calls(result: Mapping[str, Any]) -> str:
    calls = result["operators"]
    short = sum(not call["apart"] for call in calls)
    note = ""
    if result["energy_j"] is not None and short:
        note = (
            f"<p>~: too short to separate: the power of {short} of {len(calls)} calls is not known "
            "within 15 % of the step's.</p>"
        )
    numbered = [{**call, "number": number} for number, call in enumerate(calls, start=1)]
    fields = ("time_s", "energy_j", "deviation_j", "watts", "celsius", "live_bytes", "rss_bytes")
    data = download_table(
        "calls.csv",
        ("call", "name", "operator", "role", *fields),
        [
            (n, call["name"], call["operator"], call["role"], *(call.get(f) for f in fields))
            for n, call in enumerate(calls, start=1)
        ],
    )
    longest = sorted(numbered, key=lambda call: -call["time_s"])
    return note + _table(("number", "name"), longest) + data


def _table(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    return table(
        (*names, *_COLUMNS),
        [(*(str(row[name]) for name in names), *_figures(row)) for row in rows],
        ("number", "calls", *_COLUMNS),
    )


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    energy, watts, celsius = row["energy_j"], row["watts"], row["celsius"]
    mark = "" if row["apart"] else "~"
    clocks = row.get("khz") or {}
    return (
        time_text(row["time_s"]),
        f"{row['share']:.1%}",
        "-" if energy is None else f"{mark}{1e3 * energy:.4g}",
        "-" if energy is None else f"{1e3 * row['deviation_j']:.2g}",
        "-" if watts is None else f"{mark}{watts:.3g}",
        f"{sum(row['busy'].values()):.2f}" if row["busy"] else "-",
        ", ".join(f"{name} {khz / 1000:.0f}" for name, khz in clocks.items()) or "-",
        "-" if celsius is None else f"{celsius:.1f}",
        _megabytes(row["live_bytes"]),
        _megabytes(row["rss_bytes"]),
    )


def _megabytes(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.4g}"
