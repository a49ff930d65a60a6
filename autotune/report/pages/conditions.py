"""A device's conditions over a kernel run: heat, clocks, and the speed of one unchanged kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.measurement import median
from autotune.report.plots import Axis, Series, charts

Points = list[tuple[float, float]]


def over_run(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns sections of a page for the conditions in the events; none for missing conditions."""
    if not events:
        return []
    start = events[0]["time"]
    heat: dict[str, Points] = {}
    clocks: dict[str, Points] = {}
    reference: dict[str, Points] = {}
    for event in events:
        at, serial = event["time"] - start, str(event.get("serial") or "")
        if event["event"] == "reference" and event.get("samples_s"):
            name = " ".join(filter(None, (serial, event["task"])))
            ms = 1e3 * median(event["samples_s"])
            reference.setdefault(name, []).append((at, ms))
        for seen in (event.get("conditions") or ())[-1:]:
            if seen["celsius"] is not None:
                name = " ".join(filter(None, (serial, seen.get("zone") or "temperature")))
                heat.setdefault(name, []).append((at, seen["celsius"]))
            for clock in seen["clocks"]:
                if clock["khz"]:
                    name = " ".join(filter(None, (serial, clock["name"])))
                    clocks.setdefault(name, []).append((at, clock["khz"] / 1000))
    sections = []
    for heading, unit, found in (
        ("Temperature over the run", "degrees Celsius", heat),
        ("Clocks over the run", "MHz", clocks),
        ("The same kernel over the run", "ms, the median of each look", reference),
    ):
        series = [Series.of(name, points) for name, points in found.items()]
        if any(len(one.xs) > 1 for one in series):
            x = Axis.over("seconds since the run began", [t for s in series for t in s.xs])
            y = Axis.over(unit, [v for s in series for v in s.ys])
            plot = charts.lines(heading, x, y, series)
            sections.append((heading, plot))
    return sections
