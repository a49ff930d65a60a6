"""The parts of a page that only a joint search has: its plans, and the schedules they choose."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from autotune.report.pages.html_page import download, table
from autotune.report.plots import Ratio, intervals, stacked
from autotune.studies.space import (
    GAINS,
    configuration_text,
    fronts_text,
    gain_text,
    interval_text,
    placement_texts,
)

Plan = Mapping[str, Any]
_DIGITS, _SEQUENTIAL = 8, "sequential"
_MEMORIES = ("copy", "map")
_COSTS = {
    "to_gpu": "to the GPU",
    "reorder_to_gpu": "layout there",
    "to_host": "to the CPU",
    "reorder_to_host": "layout back",
}


def sequential_trials(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns trials of the search for comparison: kernels first, cores and clocks afterwards."""
    return [event for event in events if event["event"] == "sequential_trial"]


def gained(other: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Describes the gain of a joint search over tuning kernels first and choosing cores and clocks afterwards."""
    if other is None:
        return []
    ratios = []
    for name, (word, _) in GAINS.items():
        if (ratio := other[name]) is not None:
            text = gain_text(name, "joint", "tuning kernels first, then cores", ratio)
            ratios.append(Ratio(word, ratio["ratio"], ratio["ci"], f"{text}."))
    best = other["best"]
    joules = f", {best['energy_j']:.4g} J" if best["energy_j"] is not None else ""
    html = (
        f"<p>As many steps ({other['measured']}) with each kernel's fastest schedule found "
        f"{escape(configuration_text(best))}: {best['time_s']:.4g} s{joules}. Both searches' best, measured in "
        f"interleaved blocks ({other['blocks']}):</p>"
    )
    if ratios:
        html += "".join(f"<p>{escape(ratio.title)}</p>" for ratio in ratios)
        html += intervals("Joint beside kernels first", "gain of joint over kernels first", ratios)
    if (fronts := other.get("front")) is not None:
        html += f"<p>{escape(fronts_text(fronts))}.</p>"
    return [("What joint search gained over kernels first, then cores", html)]


def placement(found: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Describes the best place of the step, the CPU or a GPU, and the cost of moving tensors between them."""
    if found is None:
        return []
    html = "".join(f"<p>{escape(line)}.</p>" for line in placement_texts(found))
    ratios = [
        Ratio(
            f"{name} {word}",
            ratio["ratio"],
            ratio["ci"],
            f"{gain_text(figure, name, 'the CPU alone', ratio)}.",
        )
        for name, place in found["places"].items()
        for figure, (word, _) in GAINS.items()
        if place and (ratio := place.get(f"cpu_over_{figure}"))
    ]
    if ratios:
        html += intervals("With the GPU beside the CPU alone", "gain over the CPU alone", ratios)
    rows = [
        (
            str(one["bytes"]),
            str(one["tensors"]),
            memory,
            *(f"{1e6 * one[memory][name]:.1f}" for name in _COSTS),
        )
        for one in sorted(found["crossings"], key=lambda one: -one["bytes"])
        for memory in _MEMORIES
        if memory in one
    ]
    columns = ("bytes", "tensors", "memory", *(f"{words}, us" for words in _COSTS.values()))
    html += f"<p>Crossings, of which the search took those by {found['memory']}:</p>"
    html += table(columns, rows, tuple(column for column in columns if column != "memory"))
    return [("CPU or GPU", html)]


def _form(step: Mapping[str, Any]) -> str:
    """Describes how a plan computes its step, if not in the plain form."""
    parts = []
    if step.get("micro_batch"):
        parts.append(f"micro-batches of {step['micro_batch']}")
    if step.get("recompute"):
        parts.append(f"recomputed in {step['recompute']} segments")
    return ", ".join(parts) or "plain"


def plan_sections(plans: Mapping[str, Plan]) -> list[tuple[str, str]]:
    """Returns sections of a page; none if there is no plan.

    Args:
        plans: Plans by name; docs/joint.md has their form.
    """
    if not plans:
        return []
    alike: dict[str, list[str]] = {}
    for name, plan in plans.items():
        alike.setdefault(json.dumps([plan["configuration"], plan["calls"]]), []).append(name)
    distinct = {", ".join(names): plans[names[0]] for names in alike.values()}
    # The plan of kernels tuned first is not a choice of the joint search.
    chosen = [plan for name, plan in distinct.items() if name != _SEQUENTIAL]
    links = "".join(download(f"{name}.json", plan) for name, plan in plans.items())
    return [
        ("Plans", _table(distinct) + links),
        ("Predicted time of each plan by role", _by_role(distinct)),
        ("Schedules by cluster", _schedules(chosen)),
    ]


def _table(plans: Mapping[str, Plan]) -> str:
    rows = []
    for name, plan in plans.items():
        measured, predicted = plan["measured"], plan["predicted"]
        ci = measured.get("ci") or {}
        rows.append(
            (
                name,
                configuration_text(plan["configuration"]),
                _form(plan["step"]),
                str(plan["configuration"].get("threads") or "-"),
                _number(predicted["time_s"]),
                _number(measured["time_s"]),
                interval_text(ci.get("time_s")),
                _number(predicted["energy_j"]),
                _number(measured["energy_j"]),
                interval_text(ci.get("energy_j")),
                _number(plan["memory"]["planned_bytes"] / 1e6),
            )
        )
    numbers = ("threads", "s predicted", "s measured", "J predicted", "J measured", "MB planned")
    columns = (
        "plan",
        "configuration",
        "step",
        *numbers[:3],
        "s, 95 %",
        *numbers[3:5],
        "J, 95 %",
        numbers[5],
    )
    return table(columns, rows, (*numbers, "s, 95 %", "J, 95 %"))


def _by_role(plans: Mapping[str, Plan]) -> str:
    roles = list(dict.fromkeys(c["role"] for plan in plans.values() for c in plan["calls"]))
    rows = []
    for name, plan in plans.items():
        known = [call for call in plan["calls"] if call["predicted"]]
        parts = [
            1e3 * sum(c["predicted"]["time_s"] for c in known if c["role"] == role)
            for role in roles
        ]
        rows.append((name, parts))
    return stacked("Predicted time of each plan by role", "ms a step", roles, rows)


def _schedules(plans: Sequence[Plan]) -> str:
    """Returns the schedules of each kernel that the plans choose, by the clusters that they train on."""
    kernels: dict[str, dict[str, Any]] = {}
    groups: list[str] = []
    for plan in plans:
        clusters = plan["configuration"]["clusters"] or {}
        group = " + ".join(name for name, c in clusters.items() if c["cores"]) or "all"
        if group not in groups:
            groups.append(group)
        for call in plan["calls"]:
            if call["schedule"] is not None:
                one = kernels.setdefault(call["kernel"], {"role": call["role"], "chosen": {}})
                text = f"{call['schedule']['formulation']} {call['schedule']['digest'][:_DIGITS]}"
                one["chosen"].setdefault(group, {})[text] = None
    unlike = {
        name
        for name, one in kernels.items()
        if len({tuple(chosen) for chosen in one["chosen"].values()}) > 1
    }
    rows = [
        (name, one["role"], *(", ".join(one["chosen"].get(group, ())) or "-" for group in groups))
        for name, one in sorted(kernels.items(), key=lambda item: item[0] not in unlike)
    ]
    note = (
        f"<p>Formulation and the first letters of the schedule's digest, by the clusters that plans train on. "
        f"{len(unlike)} of {len(kernels)} kernels, which come first, have unlike schedules on unlike clusters.</p>"
        if len(groups) > 1
        else "<p>Formulation and the first letters of the schedule's digest. All plans train on the same "
        "clusters.</p>"
    )
    return note + table(("kernel", "role", *groups), rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
