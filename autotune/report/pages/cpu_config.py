"""The page of a search over cores and clocks, alone or together with schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.report.pages.about import device_name, emulated_notice, request_section
from autotune.report.pages.html_page import download, download_table, page, table
from autotune.report.pages.joint import gained, placement, plan_sections, sequential_trials
from autotune.report.pages.points import found_points, front_plot, heat_maps
from autotune.report.pages.samples import over_time
from autotune.report.pages.searches import history, over_search
from autotune.studies.space import configuration_text, ratio_text

_COLUMNS = ("trial", "configuration", "s a step", "J a step", "C", "proposed by", "note")


def cpu_config_page(
    folder: Path,
    about: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    plans: Mapping[str, Mapping[str, Any]] | None = None,
    unfinished: str = "",
) -> str:
    """Returns a page for a run.

    Args:
        folder: The run's folder, for the raw records of its best configuration.
        about: Content of `run.json`.
        events: Its events.
        result: Content of `result.json`, or the output of `search_so_far`.
        plans: Plans of a joint search, by name.
        unfinished: Notice that it has not ended; empty if it has.
    """
    device = result["device"]
    own = [e for e in events if e["event"] == "trial"]
    others = result.get("others", ())
    trials = sorted([*own, *others], key=lambda trial: int(trial["number"]))
    trials += _rounds(events, len(trials))
    joint = bool(about.get("request", {}).get("joint"))
    sections = [
        ("What was found", found_points(result)),
        *gained(result.get("sequential")),
        *placement(result.get("placement")),
        ("Search history", history(trials, result, sequential_trials(events))),
        ("Time and energy", front_plot(trials, result, sequential_trials(events))),
        *plan_sections(plans or {}),
        *heat_maps(trials),
        *over_search(events),
        *_over_time(folder, events, result, about.get("device", device)),
        ("What the models say", _models(result)),
        *_repeats(result),
        *_plan(result.get("per_operator")),
        ("Every measurement", _shared(others, trials) + _trials(trials)),
        request_section(about, None if unfinished else result),
    ]
    warnings = [f"Warning: {text}" for text in result.get("warnings", ())]
    what = "Schedules, cores and clocks" if joint else "CPU configuration"
    title = f"{what} of {device_name(device)} for {result['objective']}"
    return page(title, [unfinished, emulated_notice(device), *warnings], sections)


def _rounds(events: Sequence[Mapping[str, Any]], first: int) -> list[dict[str, Any]]:
    """Returns configurations that a joint search measured again with other schedules, as further trials."""
    rounds = [event for event in events if event["event"] == "round" and "configuration" in event]
    return [
        {**event, "number": number, "reason": "other schedules"}
        for number, event in enumerate(rounds, start=first)
    ]


def _over_time(
    folder: Path,
    events: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    device: Mapping[str, Any],
) -> list[tuple[str, str]]:
    """Returns plots of temperature and clocks during the first measurement of the best configuration."""
    best = result["best"] or {}
    raw = next(
        (
            e["raw"]
            for e in events
            if e["event"] == "trial"
            and e.get("raw")
            and all(best.get(name) == value for name, value in e["configuration"].items())
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
    errors = ", ".join(f"{name} {value:.1%}" for name, value in error["left_out"].items())
    html = f"<p>Model error, leave-one-out (median): {errors}.</p>"
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
    """Returns sections about the device's steadiness and the results of challenges to the best."""
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
        note = "<p>The fastest of the first three again, over its first two runs (98 %):</p>"
        sections.append(("Drift", note + drift))
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
    """Describes a configuration for each operator: predicted gain, measured gain, and places of change."""
    if found is None:
        return []
    numbered = found["configurations"]
    html = ""
    for name, word in (("phases", "phase"), ("operators", "operator")):
        plan = found[name]
        if plan is None:
            html += f"<p>No plan per {word} meets the limits.</p>"
        elif not plan["changes"]:
            html += (
                f"<p>Per {word}: nothing beats the best single configuration, changes counted.</p>"
            )
        else:
            html += (
                f"<p>Per {word}: {len(plan['changes'])} changes a step, predicted gain "
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
    """Describes who made the measurements of a study that several processes share."""
    if not others:
        return ""
    return (
        f"<p>{len(others)} of {len(trials)} measurements were made by other processes: "
        "their raw records are in their folders.</p>"
    )


def _trials(trials: Sequence[Mapping[str, Any]]) -> str:
    """Returns every trial as a table, and its data."""
    raw = []
    for trial in trials:
        figures = trial["figures"] or {}
        note = trial["message"] or "; ".join(trial.get("marks") or ())
        known = (figures.get(name) for name in ("time_s", "energy_j", "celsius"))
        what = configuration_text(trial["configuration"])
        raw.append((trial["number"], what, *known, trial["reason"], note))
    shown = [
        (
            str(number), what, *("-" if value is None else f"{value:.4g}" for value in figures),
            reason, note,
        )
        for number, what, *figures, reason, note in raw
    ]  # fmt: skip
    return (
        table(_COLUMNS, shown, ("trial", "s a step", "J a step", "C"))
        + download_table("measurements.csv", _COLUMNS, raw)
        + download("measurements.json", list(trials))
    )
