"""Progress of a search over cores and clocks: the best so far, with heat and power during the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.report.plots import Axis, Series, charts
from autotune.studies.space import Figures, Limits, Objective, best, front, hypervolume, values

_MEASURED = ("trial", "round", "reference", "challenge", "final", "beside")
_SEQUENTIAL = "sequential_"
_ROOM = 1.1
_UNITS = {"latency": "seconds a step", "energy": "joules a step", "edp": "joule seconds a step"}


def search_so_far(
    about: Mapping[str, Any], events: Sequence[Mapping[str, Any]], limits: Limits
) -> dict[str, Any]:
    """Returns the results of an unfinished search in the form of a result. Each configuration was measured once."""
    request, device = about["request"], about.get("device") or {}
    objective: Objective = request.get("objective") or "latency"
    trials = [e for e in events if e["event"] == "trial" and e["figures"]]
    figures = [Figures(**t["figures"]) for t in trials]

    def point(index: int) -> dict[str, Any]:
        trial = trials[index]
        return {
            **trial["configuration"], **trial["figures"], "ci": None, "rails": {},
            "seen_khz": trial.get("khz") or {}, "marks": trial.get("marks") or [],
        }  # fmt: skip

    known = [i for i, f in enumerate(figures) if limits.kept(f) and f.energy_j is not None]
    on_front = (
        [known[i] for i in front([values("pareto", figures[i]) for i in known])] if known else []
    )
    needed = objective != "latency"
    usable = [i for i, f in enumerate(figures) if not needed or f.energy_j is not None]
    winner = best(objective, limits, [figures[i] for i in usable])
    emulated = request.get("emulate")
    return {
        "device": {
            **device,
            "emulated": device.get("emulated") or (f"emulated: {emulated}" if emulated else ""),
        },
        "objective": objective,
        "limits": limits.to_json(),
        "best": None if winner is None else point(usable[winner]),
        "points": {},
        "pareto": [point(i) for i in sorted(on_front, key=lambda i: figures[i].time_s)],
        "default": None,
        "model_error": {},
    }


def history(
    trials: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Plots the best value so far after each trial; for a Pareto search, the hypervolume so far.

    Args:
        trials: Trials in their order.
        result: The search's result.
        others: Trials of another search that it is compared with.
    """
    objective: Objective = result["objective"]
    limits = Limits(**{k: v for k, v in (result.get("limits") or {}).items() if v is not None})
    found = [_measured(objective, side) for side in (trials, others)]
    kept = [[(n, f) for n, f in side if limits.kept(f)] for side in found]
    if not kept[0]:
        return "<p>Nothing that meets the limits was measured.</p>"
    x = Axis.over("trials", [0, max(len(trials), len(others))])
    named = [
        (name, side, len(all_))
        for name, side, all_ in zip(
            ("best so far", "kernels first, then cores"), kept, (trials, others), strict=True
        )
        if side
    ]
    if objective == "pareto":
        return _volume(x, named)
    series = [
        Series.best_so_far(
            name, [(n, values(objective, f)[0]) for n, f in side], last, higher=False
        )
        for name, side, last in named
    ]
    points = [(n, values(objective, f)[0]) for n, f in found[0]]
    series.append(Series.of("a trial", points, dots=True))
    y = Axis.over(_UNITS[objective], [v for one in series for v in one.ys], logarithmic=True)
    return charts.lines("Best so far", x, y, series)


def _measured(
    objective: Objective, trials: Sequence[Mapping[str, Any]]
) -> list[tuple[float, Figures]]:
    """Returns figures of trials with their numbers, if they have the figures that the objective needs."""
    known = [
        (float(number), Figures(**trial["figures"]))
        for number, trial in enumerate(trials, start=1)
        if trial["figures"]
    ]
    if objective == "latency":
        return known
    return [(n, f) for n, f in known if f.energy_j is not None and f.energy_j > 0]


def _volume(x: Axis, named: Sequence[tuple[str, Sequence[tuple[float, Figures]], int]]) -> str:
    """Plots the share of the largest hypervolume that was known after each trial of each search."""
    pairs = [[values("pareto", f) for _, f in side] for _, side, _ in named]
    every = [pair for side in pairs for pair in side]
    reference = [_ROOM * max(pair[axis] for pair in every) for axis in (0, 1)]
    whole = max(hypervolume(side, reference) for side in pairs)
    series = []
    for (name, side, last), own in zip(named, pairs, strict=True):
        points = [
            (n, 100 * hypervolume(own[:count], reference) / whole)
            for count, (n, _) in enumerate(side, start=1)
        ]
        series.append(Series.best_so_far(name, points, last, higher=True))
    y = Axis("% of the largest hypervolume", 0.0, 105.0)
    return charts.lines("Hypervolume of the front so far", x, y, series) + (
        "<p>The area that the front dominates. The reference point is 10 % above the largest measured time and "
        "energy.</p>"
    )


def over_search(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Plots temperature and power of every measurement over the time of the search."""
    measured = [
        e for e in events if e["event"].removeprefix(_SEQUENTIAL) in _MEASURED and e.get("figures")
    ]
    if len(measured) < 2:
        return []
    start = measured[0]["time"]
    sections = []
    for heading, unit, found in (
        (
            "Temperature over the search", "degrees Celsius, the highest of each measurement",
            [(e["time"] - start, e["figures"]["celsius"]) for e in measured],
        ),
        (
            "Power over the search", "watts above idle, the mean of each measurement",
            [
                (e["time"] - start, e["figures"]["energy_j"] / e["figures"]["time_s"])
                for e in measured
                if e["figures"].get("energy_j") is not None
            ],
        ),
    ):  # fmt: skip
        known = [(at, value) for at, value in found if value is not None]
        if len(known) > 1:
            x = Axis.over("seconds since the first measurement", [at for at, _ in known])
            y = Axis.over(unit.split(",")[0], [value for _, value in known])
            series = [Series.of(unit.split(", ")[-1], known, dots=True)]
            sections.append((heading, charts.lines(heading, x, y, series)))
    return sections
