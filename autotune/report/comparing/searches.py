"""Comparison of two searches over cores and clocks, with schedules or without."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.records import Run
from autotune.report.comparing.kernels import verdict
from autotune.studies.space import gain, hypervolume


def compared_searches(first: Run, second: Run) -> dict[str, Any]:
    """Compares the named points of both searches, and their fronts."""
    results = [run.result or {} for run in (first, second)]
    points = []
    named = [{"best": r["best"], **r["points"], "default": r["default"]} for r in results]
    for name in dict.fromkeys([*named[0], *named[1]]):
        one, other = (side.get(name) for side in named)
        if one is None or other is None:
            continue
        points.append(
            {
                "name": name, "first": one, "second": other,
                "time_s": ratio(one, other, "time_s"), "energy_j": ratio(one, other, "energy_j"),
            }
        )  # fmt: skip
    return {"points": points, "fronts": fronts([r["pareto"] for r in results])}


def ratio(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Returns first over second of a figure, with an interval from both intervals; None if one is unknown.

    The half-widths of the logarithms are added like independent errors.
    """
    values = [float(point.get(name) or 0.0) for point in (one, other)]
    if min(values) <= 0:
        return None
    estimate, ends = values[0] / values[1], None
    known = [ci for point in (one, other) if (ci := (point.get("ci") or {}).get(name))]
    if len(known) == 2 and all(ci[0] > 0 for ci in known):
        half = math.hypot(*(math.log(ci[1] / ci[0]) / 2 for ci in known))
        ends = [estimate * math.exp(-half), estimate * math.exp(half)]
    return {"ratio": estimate, "ci": ends, "verdict": verdict(ends)}


def fronts(both: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Returns the hypervolumes of two fronts below one reference, and the share of each that the other dominates.

    Areas are of logarithms, below the worst of both fronts (`gain`). Returns None if one search has no front.
    """
    pairs = [
        [(p["time_s"], p["energy_j"]) for p in side if (p["energy_j"] or 0) > 0] for side in both
    ]
    if not all(pairs):
        return None
    every = [*pairs[0], *pairs[1]]
    worst = [max(pair[axis] for pair in every) for axis in (0, 1)]
    below = [math.log(value) for value in worst]
    volumes = [hypervolume([(math.log(x), math.log(y)) for x, y in side], below) for side in pairs]
    of_second, more = gain(pairs[0], pairs[1])
    of_first, _ = gain(pairs[1], pairs[0])
    return {
        "reference": {"time_s": worst[0], "energy_j": worst[1]},
        "points": {"first": len(pairs[0]), "second": len(pairs[1])},
        "hypervolume": {"first": volumes[0], "second": volumes[1]},
        "gain": more,
        "dominated": {"first": of_first, "second": of_second},
    }
