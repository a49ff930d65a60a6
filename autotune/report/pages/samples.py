"""Clocks and temperatures over time, from the raw record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import RecordError
from autotune.reading import LINES, Unreadable, parse_json, read_bytes
from autotune.report.plots import Axis, Series, charts

_MOST_SAMPLES = 1500


def over_time(path: Path, device: Mapping[str, Any], during: str) -> list[tuple[str, str]]:
    """Returns sections of a page for the content of a record; none for missing content.

    Args:
        path: A record of `autotune_observe`.
        device: The device, for the names of its clusters and sensors.
        during: End of the headings, such as `while the best was measured`.
    """
    names = {
        policy.rpartition("/")[2]: cluster["name"]
        for cluster in device.get("clusters", ())
        for policy in cluster.get("policies", ())
    }
    for zone in device.get("thermal_zones", ()):
        names[zone["path"].rpartition("/")[2]] = zone["name"]
    temperatures, clocks = _samples(path, names)
    sections = []
    for heading, label, found in (
        (f"Temperature {during}", "degrees Celsius", temperatures),
        (f"Clocks {during}", "MHz", clocks),
    ):
        series = [Series.of(n, points) for n, points in found.items()]
        if series:
            x = Axis.over("seconds", [t for s in series for t in s.xs])
            y = Axis.over(label, [v for s in series for v in s.ys])
            sections.append((heading, charts.lines(heading, x, y, series)))
    return sections


def _samples(
    path: Path, names: Mapping[str, str]
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, list[tuple[float, float]]]]:
    temperatures: dict[str, list[tuple[float, float]]] = {}
    clocks: dict[str, list[tuple[float, float]]] = {}
    watch: list[str] = []
    start: float | None = None
    lines = read_bytes(path, LINES.bytes, RecordError).splitlines()
    every = max(1, len(lines) // _MOST_SAMPLES)
    for number, line in enumerate(lines):
        try:
            entry = parse_json(line)
        except Unreadable:
            continue  # Cut off by a full disk or a restart.
        if "begin" in entry:
            watch = entry["watch"]
            start = entry["begin"] if start is None else start
        if "sample" not in entry or start is None or number % every:
            continue
        before, after, values = entry["sample"]
        time = (before + after) / 2 - start
        for name, value in zip(watch, values, strict=True):
            if value is None:
                continue
            folder = name.split("/")[-2]
            if name.endswith("/temp") and "thermal_zone" in name:
                celsius = float(value) / 1000 if abs(float(value)) >= 1000 else float(value)
                temperatures.setdefault(names.get(folder, folder), []).append((time, celsius))
            elif name.endswith("/scaling_cur_freq"):
                clocks.setdefault(names.get(folder, folder), []).append((time, float(value) / 1000))
    return temperatures, clocks
