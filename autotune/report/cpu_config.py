"""The page of a search for a CPU configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.report import svg
from autotune.report.page import download, page, table
from autotune.report.samples import over_time
from autotune.report.svg import Axis, Point
from autotune.studies.texts import (
    configuration_text,
    doubts,
    exhaustive_text,
    interval_text,
    joules_text,
    ratio_text,
)

_NAMES = {
    "best": "best",
    "fastest": "fastest",
    "least_energy": "least energy",
    "least_edp": "least energy-delay product",
    "knee": "knee of the front",
    "least_energy_in_time": "least energy in time",
}


def cpu_config_page(
    folder: Path,
    about: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
) -> str:
    """A run as a page.

    Args:
        folder: The run's, for the raw records of its best configuration.
        about: Content of `run.json`.
        events: Its events.
        result: Content of `result.json`.
    """
    device = result["device"]
    own = [e for e in events if e["event"] == "trial"]
    others = result.get("others", ())
    trials = sorted([*own, *others], key=lambda trial: int(trial["number"]))
    sections = [
        ("What was found", _points(result)),
        ("Time and energy", _front(trials, result)),
        *_heat_maps(trials),
        *_over_time(folder, events, result, about.get("device", device)),
        ("What the models say", _models(result)),
        *_repeats(result),
        *_plan(result.get("per_operator")),
        (
            "Every measurement",
            _shared(others, trials) + _trials(trials) + download("measurements.json", list(trials)),
        ),
        (
            "How it was asked",
            download("run.json", dict(about)) + download("result.json", dict(result)),
        ),
    ]
    title = f"CPU configuration of {device.get('model') or device.get('serial')} for {result['objective']}"
    emulated = device.get("emulated") or ""
    notice = f"{emulated}: times and joules are a model's" if emulated else ""
    return page(title, notice, sections)


def _points(result: Mapping[str, Any]) -> str:
    shown = {"best": result["best"], **result["points"]}
    rows = [(_NAMES.get(name, name), *_row(p)) for name, p in shown.items() if p is not None]
    if result["default"]:
        rows.append(("the system's own choice", *_row(result["default"])))
    numbers = ("s a step", "J a step", "C")
    html = table(
        ("point", "configuration", "s a step", "95 %", "J a step", "95 %", "C"), rows, numbers
    )
    against = result.get("against_default") or {}
    for name, word in (("time_s", "time"), ("energy_j", "energy")):
        if name in against:
            html += (
                f"<p>{word}, the system's own choice over the best: {ratio_text(against[name])}</p>"
            )
    named = [(_NAMES.get(name, name), point) for name, point in shown.items()]
    doubtful = doubts(
        [*named, ("the system's own choice", result["default"])], result.get("marks", ())
    )
    if (whole := result.get("exhaustive")) is not None:
        html += f"<p>{escape(exhaustive_text(whole, result['space']))}</p>"
    return (
        html
        + _rails(shown)
        + "".join(f"<p>Doubtful ({escape(name)}): {escape(mark)}</p>" for name, mark in doubtful)
    )


def _rails(shown: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Joules of each point by rail, of a meter that has several."""
    points = {name: p for name, p in shown.items() if p is not None and p.get("rails")}
    names = list(dict.fromkeys(rail for p in points.values() for rail in p["rails"]))
    if not names:
        return ""
    rows = [
        (
            _NAMES.get(name, name),
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


def _front(trials: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> str:
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
    front = [
        Point(p["time_s"], p["energy_j"], configuration_text(p), marked=True)
        for p in result["pareto"]
        if p["energy_j"] > 0
    ]
    own = result["default"]
    if own and (own["energy_j"] or 0) > 0:
        points.append(
            Point(own["time_s"], own["energy_j"], "the system's own choice", True, "system's own")
        )
    every = [*points, *front]
    x = Axis.over("seconds a step", [p.x for p in every], logarithmic=True)
    y = Axis.over("joules a step, above idle", [p.y for p in every], logarithmic=True)
    return svg.scatter(x, y, every, front)


def _heat_maps(trials: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Cores x clocks of each cluster alone, where there is something to compare."""
    sections = []
    names = list(trials[0]["configuration"]["clusters"]) if trials else []
    for name in names:
        alone: dict[tuple[int, int], Mapping[str, Any]] = {}
        for trial in trials:
            clusters = trial["configuration"]["clusters"]
            if trial["figures"] and all(
                bool(c["cores"]) == (other == name) for other, c in clusters.items()
            ):
                alone[clusters[name]["cores"], clusters[name]["khz"] or 0] = trial["figures"]
        if len(alone) < 3:
            continue
        cores = sorted({n for n, _ in alone})
        clocks = sorted({k for _, k in alone})
        for field, unit in (("time_s", "s"), ("energy_j", "J")):
            cells = [
                [alone[n, k][field] if (n, k) in alone else None for k in clocks] for n in cores
            ]
            if not any(value for row in cells for value in row):
                continue
            sections.append(
                (
                    f"{name} alone: {'seconds' if unit == 's' else 'joules'} a step",
                    svg.heat_map(
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
        told = "<p>No cluster was measured alone in three configurations, which a map of them needs.</p>"
        sections.append(("Cores and clocks", told))
    return sections


def _over_time(
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    device: Mapping[str, Any],
) -> list[tuple[str, str]]:
    """Temperature and clocks while the best configuration was measured first."""
    best = result["best"] or {}
    raw = next(
        (
            e["raw"]
            for e in events
            if e["event"] == "trial"
            and e.get("raw")
            and e["configuration"]["clusters"] == best.get("clusters")
        ),
        None,
    )
    path = folder / "raw" / str(raw)
    if raw is None or not path.is_file():
        return []
    return over_time(path, device, "while the best was measured")


def _models(result: Mapping[str, Any]) -> str:
    error = result["model_error"]
    if not error:
        return "<p>Too little was measured to say.</p>"
    told = ", ".join(f"{name} {value:.1%}" for name, value in error["left_out"].items())
    html = f"<p>A configuration that is left out is foretold within (median): {told}.</p>"
    constants = error["constants"]
    names = ("a_s", "b_s_ghz", "c_w", "d_w", "g")
    rows = [
        (cluster, *(f"{c[n]:.3g}" if n in c else "-" for n in names))
        for cluster, c in constants["clusters"].items()
    ]
    columns = ("cluster", "a (s)", "b (s GHz)", "c (W)", "d (W)", "g")
    return (
        html
        + "<p>One core alone: seconds a + b / f, watts c + d f<sup>g</sup>, f in GHz.</p>"
        + table(columns, rows, columns[1:])
    )


def _repeats(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """How steady the device was, and what became of those that looked better than the best."""
    sections = []
    references, challenges = result.get("reference", ()), result.get("challenges", ())
    if references:
        drift = table(
            ("after trials", "seconds", "joules"),
            [
                (str(r["after"]), _ratio(r.get("time_s")), _ratio(r.get("energy_j")))
                for r in references
            ],
            ("after trials",),
        )
        told = "<p>The fastest of the first three again, over its first two runs (98 %):</p>"
        sections.append(("Drift", told + drift))
    if challenges:
        verdicts = table(
            ("challenger", "best by then", "blocks", "best / challenger", "verdict"),
            [
                (
                    configuration_text(c["challenger"]), configuration_text(c["incumbent"]),
                    str(c["blocks"]), _ratio(c), c["verdict"],
                )
                for c in challenges
            ],
            ("blocks",),
        )  # fmt: skip
        sections.append(("Challenges", verdicts))
    return sections


def _plan(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """A configuration for each operator: what it is to gain, what it gains, and where it changes."""
    if found is None:
        return []
    numbered = found["configurations"]
    html = ""
    for name, word in (("phases", "phase"), ("operators", "operator")):
        plan = found[name]
        if plan is None:
            html += f"<p>No plan per {word} keeps the limits.</p>"
        elif not plan["changes"]:
            html += (
                f"<p>Per {word}: nothing beats the best single configuration, changes counted.</p>"
            )
        else:
            html += (
                f"<p>Per {word}: {len(plan['changes'])} changes a step, foretold gain "
                f"{plan['foretold_gain']:.3f}.</p>"
            )
    if (measured := found["measured"]) is not None:
        html += (
            "<p>The plan per operator, measured beside the best single configuration: gain "
            f"{ratio_text(measured)}.</p>"
        )
    plan = found["operators"]
    if plan is not None and plan["changes"]:
        html += table(
            ("from this call on", "configuration"),
            [(c["name"], configuration_text(numbered[c["to"]])) for c in plan["changes"]],
            (),
        )
    return [("A configuration for each operator", html)]


def _ratio(value: Mapping[str, Any] | None) -> str:
    if value is None or value["ratio"] is None:
        return "-"
    low, high = value["ci"]
    return f"{value['ratio']:.3f} ({low:.3f} to {high:.3f})" + (
        ": drifted" if value.get("drifted") else ""
    )


def _shared(others: Sequence[object], trials: Sequence[object]) -> str:
    """Whose measurements they are, in a study that several processes share."""
    if not others:
        return ""
    return (
        f"<p>{len(others)} of {len(trials)} measurements were made by other processes: "
        "their raw records are in their folders.</p>"
    )


def _trials(trials: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for trial in trials:
        figures = trial["figures"] or {}
        joules = figures.get("energy_j")
        rows.append(
            (
                str(trial["number"]),
                configuration_text(trial["configuration"]),
                f"{figures['time_s']:.4g}" if figures else "-",
                "-" if joules is None else f"{joules:.4g}",
                trial["reason"],
                trial["message"] or "; ".join(trial.get("marks") or ()),
            )
        )
    columns = ("trial", "configuration", "s a step", "J a step", "proposed by", "note")
    return table(columns, rows, ("trial", "s a step", "J a step"))


def check(
    about: Mapping[str, Any], result: Mapping[str, Any] | None, path: Path
) -> Mapping[str, Any]:
    """The result of a run that this page can show.

    Raises:
        UsageError: The run is of another kind, or has not ended.
    """
    if "objective" not in about.get("request", {}):
        raise UsageError(
            f"{path} is no run of cpu-config or profile",
            hint="runs of other commands have no report yet",
        )
    if result is None:
        raise UsageError(
            f"{path} has not ended", hint=f"go on with it: autotune cpu-config --resume {path}"
        )
    return result
