"""Results of a run for other programs: tables as CSV, trials in Kernel Tuner's T4 form (docs/interop.md)."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from autotune.records import Result, TaskResult
from autotune.report.tables.csv_table import csv_text
from autotune.studies.space import Figures, Limits

T4_SCHEMA_VERSION = "1.0.0"
_OF_KERNELS = (
    "name", "operator", "role", "spec", "count", "default_ms", "tuned_ms", "speedup", "gflops", "trials", "valid",
    "max_rel_error", "formulation", "digest", "movement_ms", "doubt",
)  # fmt: skip
_FIGURES = {
    "time_s": ("time", "s"),
    "energy_j": ("energy", "J"),
    "celsius": ("temperature", "C"),
    "memory_bytes": ("memory", "B"),
    "deviation_j": ("energy deviation", "J"),
}
"""Figures of a step, and their names and units in T4."""
_AGAIN = ("time_s", "energy_j")
_INVALIDITY = {
    "ok": "correct",
    "compile_error": "compile",
    "wrong_result": "correctness",
    "timeout": "timeout",
}
"""T4's words for the status of a trial; `runtime` for any other status."""
_OBJECTIVES = {"latency": ["time"], "energy": ["energy"], "edp": ["edp"]}

Events = Sequence[Mapping[str, Any]]


def kernels_csv(result: Result) -> str:
    """Returns a run's kernels as CSV, one row each, with the 95 % interval of the speed-up.

    Times are in milliseconds.
    """
    columns = (*_OF_KERNELS, "speedup_low", "speedup_high")

    def row(task: TaskResult) -> list[Any]:
        return [*(getattr(task, name) for name in _OF_KERNELS), *(task.ci or (None, None))]

    return csv_text(columns, [row(task) for task in result.tasks])


def search_csv(events: Events, result: Mapping[str, Any]) -> str:
    """Returns configurations measured by a search as CSV: one row each, and one for the default.

    For configurations that were measured again, further columns have these figures with their 95 % intervals.
    """
    trials = _trials(events, result)
    clusters = _clusters(trials)
    again = [f"again_{key}{end}" for key in _AGAIN for end in ("", "_low", "_high")]
    columns = (
        "number", "points", "on_front", *(f"{c}_{what}" for c in clusters for what in ("cores", "mhz")),
        "threads", "status", *_FIGURES, *again, "reason", "message",
    )  # fmt: skip
    points = {"best": result["best"], **result["points"]}
    rows = []
    for trial in trials:
        here = trial["configuration"]
        names = [name for name, point in points.items() if _same(point, here)]
        front = [point for point in result["pareto"] if _same(point, here)]
        measured = next((p for p in (*points.values(), *front) if _same(p, here)), None)
        rows.append([
            trial["number"], " ".join(names), "yes" if front else "", *_setting(here, clusters), here["threads"],
            trial["status"], *_figures(trial["figures"]), *_measured_again(measured), trial["reason"],
            trial["message"],
        ])  # fmt: skip
    if (own := result["default"]) is not None:
        unset = [None] * (2 * len(clusters) + 1)
        rows.append([None, "default", "", *unset, "ok", *_figures(own), *_measured_again(own), "", ""])  # fmt: skip
    return csv_text(columns, rows)


def kernels_t4(events: Events) -> dict[str, Any]:
    """Returns trials of a kernel run in T4's form, including the untuned defaults. Times are in milliseconds."""

    def one(event: Mapping[str, Any]) -> dict[str, Any]:
        runtimes = [1e3 * seconds for seconds in event["samples_s"]]
        measured = [_measurement("time", statistics.median(runtimes), "ms")] if runtimes else []
        if (error := event.get("max_rel_error")) is not None:
            measured.append(_measurement("largest relative error", error, ""))
        default = event["event"] == "default"
        return _t4_result(
            event,
            {
                "kernel": event["task"],
                "formulation": event.get("formulation") or "",
                "schedule": "default" if default else event["digest"],
            },
            runtimes,
            _INVALIDITY.get(event["status"], "runtime"),
            measured,
            ["time"],
        )

    return _t4(one(event) for event in events if event["event"] in ("default", "trial"))


def search_t4(events: Events, result: Mapping[str, Any]) -> dict[str, Any]:
    """Returns trials of a search over cores and clocks in T4's form. A clock that is left to the system is null.

    A configuration that breaks a limit is marked invalid by its constraints, but its measurements are included.
    """
    limits = Limits(**{k: v for k, v in (result.get("limits") or {}).items() if v is not None})
    trials = _trials(events, result)
    clusters = _clusters(trials)
    names = [name for c in clusters for name in (f"{c} cores", f"{c} MHz")]

    def one(trial: Mapping[str, Any]) -> dict[str, Any]:
        here, figures = trial["configuration"], trial["figures"]
        valid = _INVALIDITY.get(trial["status"], "runtime")
        measured = []
        if figures is not None:
            found = Figures(**figures)
            valid = valid if limits.kept(found) else "constraints"
            measured = [
                _measurement(_FIGURES[name][0], value, _FIGURES[name][1])
                for name, value in asdict(found).items()
                if value is not None
            ]
            if found.edp is not None:
                measured.append(_measurement("edp", found.edp, "J s"))
        return _t4_result(
            trial,
            {**dict(zip(names, _setting(here, clusters), strict=True)), "threads": here["threads"]},
            [1e3 * seconds for seconds in trial.get("step_s") or ()],
            valid,
            measured,
            _OBJECTIVES.get(result["objective"], ["time", "energy"]),
        )

    return _t4(one(trial) for trial in trials)


def _t4(results: Iterator[dict[str, Any]]) -> dict[str, Any]:
    return {"schema_version": T4_SCHEMA_VERSION, "results": list(results)}


def _t4_result(
    event: Mapping[str, Any],
    configuration: dict[str, Any],
    runtimes: list[float],
    invalidity: str,
    measurements: list[dict[str, Any]],
    objectives: list[str],
) -> dict[str, Any]:
    # If another process of a shared study measured a trial, its time is in that process's folder.
    known = event.get("time")
    stamp = {} if known is None else {"timestamp": datetime.fromtimestamp(known, UTC).isoformat()}
    return {
        **stamp,
        "configuration": configuration,
        "times": {"runtimes": runtimes},
        "invalidity": invalidity,
        "correctness": int(event["status"] == "ok"),
        "measurements": measurements,
        "objectives": objectives,
    }


def _measurement(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}


def _trials(events: Events, result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns measurements by this process and by others of a shared study, by number."""
    own = [event for event in events if event["event"] == "trial"]
    return sorted((*own, *result.get("others", ())), key=lambda trial: trial["number"] or 0)


def _clusters(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for t in trials for name in t["configuration"]["clusters"]))


def _setting(configuration: Mapping[str, Any], clusters: Sequence[str]) -> Iterator[Any]:
    """Yields cores and MHz of each cluster."""
    for name in clusters:
        setting = configuration["clusters"][name]
        yield setting["cores"]
        yield None if setting["khz"] is None else setting["khz"] / 1000


def _same(point: Mapping[str, Any] | None, configuration: Mapping[str, Any]) -> bool:
    return point is not None and all(
        point.get(name) == configuration[name] for name in ("clusters", "threads")
    )


def _figures(figures: Mapping[str, Any] | None) -> list[Any]:
    return [(figures or {}).get(name) for name in _FIGURES]


def _measured_again(point: Mapping[str, Any] | None) -> list[Any]:
    """Returns figures of a point and the ends of their intervals, if it was measured again."""
    intervals = (point or {}).get("ci")
    if point is None or not intervals:
        return [None] * (3 * len(_AGAIN))
    return [value for name in _AGAIN for value in (point[name], *(intervals[name] or (None, None)))]
