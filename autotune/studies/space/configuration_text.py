"""Descriptions of configurations in a result, in words that tables and pages share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_NORMAL = 1.96
DEFAULT_POINT = "default"
"""The system's default behaviour, which results are compared with: all cores, clocks free."""
GAINS: Mapping[str, tuple[str, str]] = {
    "time_s": ("time", "fast"),
    "energy_j": ("energy", "energy-efficient"),
}
"""A figure of a result in words, and the virtue of a smaller figure."""


def configuration_text(point: Mapping[str, Any]) -> str:
    """Describes cores and clocks of a point of a result, such as `4 big 2419 MHz`; the default in words.

    If a clock is free, its observed mean is shown: `4 big (2350 MHz seen)`.
    """
    clusters, seen = point.get("clusters"), point.get("seen_khz") or {}
    if clusters is None:
        clocks = ", ".join(f"{name} {khz / 1000:.0f}" for name, khz in seen.items())
        return "all cores, clocks free" + (f" ({clocks} MHz seen)" if clocks else "")

    def clock(name: str, khz: int | None) -> str:
        if khz is not None:
            return f" {khz / 1000:.0f} MHz"
        return f" ({seen[name] / 1000:.0f} MHz seen)" if name in seen else ""

    return " + ".join(
        f"{c['cores']} {name}{clock(name, c['khz'])}" for name, c in clusters.items() if c["cores"]
    )


def ratio_text(found: Mapping[str, Any]) -> str:
    """Formats a ratio with its interval and verdict, such as `1.25 (1.20 to 1.31): better`."""
    ends = found["ci"]
    interval = "one block, no interval" if ends is None else f"{ends[0]:.3g} to {ends[1]:.3g}"
    doubt = ", of doubtful joules" if found.get("doubtful") else ""
    return f"{found['ratio']:.3g} ({interval}): {found['verdict']}{doubt}"


def gain_text(figure: str, what: str, than: str, found: Mapping[str, Any]) -> str:
    """Compares two things, such as `time: the best is 1.25x as fast as the default (1.20 to 1.31): better`.

    Args:
        figure: `time_s` or `energy_j`.
        what: The subject of the sentence.
        than: The thing that it is compared with.
        found: Ratio of `than` to `what`, with interval and verdict.
    """
    word, virtue = GAINS[figure]
    value, _, rest = ratio_text(found).partition(" ")
    return f"{word}: {what} is {value}x as {virtue} as {than} {rest}"


def compared_text(names: Sequence[str], result: Mapping[str, Any]) -> str:
    """Describes the first of two configurations relative to the second, and the better one, from a comparison."""
    first, second = names
    word = {"first": first, "second": second, "tie": "neither"}[result["verdict"]]
    ends = result["ci"]
    found = {
        "ratio": _inverse(result["ratio"]),
        "ci": sorted(map(_inverse, ends)) if ends else None,
        "verdict": f"{word} is better",
    }
    figure = "time_s" if result["by"] == "time" else "energy_j"
    return gain_text(figure, first, second, found)


def _inverse(ratio: float) -> float:
    return 1 / ratio if ratio else math.inf


def emulated_text(emulated: str) -> str:
    """Returns the notice that figures come from a model, with what is emulated."""
    return f"{emulated}: times and joules are predicted by a model, not measured"


def fronts_text(found: Mapping[str, Any]) -> str:
    """Compares the Pareto front of a joint search with that of tuning kernels first, then cores."""
    text = (
        f"Pareto front: joint equals or dominates {found['dominated']:.0%} of the points of "
        "tuning kernels first, then cores"
    )
    gain = found["hypervolume_gain"]
    if gain is None:
        return text
    return f"{text}; its hypervolume is {abs(gain):.0%} {'larger' if gain >= 0 else 'smaller'}"


def placement_texts(found: Mapping[str, Any]) -> list[str]:
    """Describes the best place of a step, the CPU or a GPU, and what it was measured beside, in lines."""
    lines = [f"{_where(found)}; the GPU is {found['gpu']}"]
    alone = found.get("cpu_configuration") or found["configuration"]
    own, others = (_with_threads(one) for one in (alone, found["configuration"]))
    apart = f"the CPU alone with {own}, which suits it best, and the GPU's share with {others}"
    lines.append(
        f"measured in interleaved blocks: {apart}"
        if own != others
        else f"measured in interleaved blocks, with {own}"
    )
    lines += _places_texts(found["places"])
    if (again := found.get("again")) is not None:
        last = _with_threads(again["configuration"])
        lines.append(f"then compared with that CPU alone in interleaved blocks: {last}")
        lines += _places_texts(again["places"])
    if found["stand_in"]:
        lines.append("STAND-IN: OpenCL's device here is not a GPU; these are not a phone's figures")
    return lines


def _where(found: Mapping[str, Any]) -> str:
    """Describes the best place of a step, with its certainty."""
    if found["best"] == "cpu":
        if found.get("sure"):
            return "the whole step is best on the CPU"
        return "the whole step stays on the CPU, because no other placement is significantly better"
    calls = f"on the GPU ({found['able']} of its {found['calls']} calls)"
    there = {"gpu": calls, "mixed": "on both"}[found["best"]]
    if (again := found.get("again")) is None or again["sure"]:
        return f"the step is best {there}"
    return f"the step was better {there}, but the final best is not significantly better"


def _with_threads(configuration: Mapping[str, Any]) -> str:
    threads = configuration["threads"]
    return f"{configuration_text(configuration)}, {threads} thread{'s' * (threads > 1)}"


def _places_texts(places: Mapping[str, Any]) -> list[str]:
    """Compares the CPU alone with each other place, in lines."""
    lines = []
    for name, place in places.items():
        if name == "cpu":
            continue
        if place is None:
            lines.append(f"with all that the {name.upper()} can do, it could not be measured")
            continue
        parts = [
            gain_text(figure, "this", "the CPU alone", ratio)
            for figure in GAINS
            if (ratio := place[f"cpu_over_{figure}"]) is not None
        ]
        if (moving := place["data_movement"]) is not None:
            parts.append(moving_text(moving))
        lines.append(f"{place['gpu_calls']} calls on the GPU: {'; '.join(parts)}")
    return lines


def moving_text(moving: Mapping[str, float]) -> str:
    """Describes the shares of a step in which tensors move to a GPU and back, by kind of crossing."""
    ways = ", ".join(f"{way} {share:.0%}" for way, share in moving.items() if share)
    return f"{sum(moving.values()):.0%} of it moves data" + f" ({ways})" * bool(ways)


def joules_text(point: Mapping[str, Any]) -> str:
    """Formats the 95 % interval of a point's joules. A single measurement uses its own uncertainty."""
    ends = (point.get("ci") or {}).get("energy_j")
    joules, deviation = point.get("energy_j"), point.get("deviation_j")
    if ends is None and joules is not None and deviation is not None:
        ends = [joules - _NORMAL * deviation, joules + _NORMAL * deviation]
    return interval_text(ends)


def exhaustive_text(whole: Mapping[str, Any], space: int) -> str:
    """Describes how far a search was from the optimum of its space, all of which was measured.

    `space` is the number of configurations.
    """
    gap, searched, number = whole["gap"], whole["searched"], whole["found_after"]
    if number <= searched:
        text = f"the search had found the optimum, as number {number} of its {searched}"
    elif gap is None:
        text = f"none of the {searched} of the search meets the limits; the optimum came as number {number}"
    else:
        text = f"the search's best of {searched} is {gap:.1%} from the optimum, which came as number {number}"
    return f"all {space} configurations were measured: {text}"


def interval_text(ends: Sequence[float] | None) -> str:
    """Formats the ends of an interval; empty for none."""
    return f"{ends[0]:.4g} to {ends[1]:.4g}" if ends else ""


def doubts(
    shown: Iterable[tuple[str, Mapping[str, Any] | None]], marks: Iterable[str]
) -> list[tuple[str, str]]:
    """Returns the reasons to doubt figures, each once: of the study, and of points with their names."""
    whole = list(dict.fromkeys(marks))
    of_points: dict[str, list[str]] = {}
    for name, point in shown:
        for mark in (point or {}).get("marks", ()):
            of_points.setdefault(mark, []).append(name.replace("_", " "))
    return [
        *(("energy", mark) for mark in whole),
        *(
            (f"energy of {', '.join(dict.fromkeys(names))}", mark)
            for mark, names in of_points.items()
            if mark not in whole
        ),
    ]
