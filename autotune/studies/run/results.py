"""Results of a search for a CPU configuration, as plain data; docs/cpu-config.md has the schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.power import one_ceiling
from autotune.studies.evaluators import Evaluator
from autotune.studies.models import constants
from autotune.studies.run.cpu_config import Outcome
from autotune.studies.run.finals import Final, figures_ratio, named_points
from autotune.studies.run.interleaving import in_both
from autotune.studies.run.study import Study, StudyRequest, StudyTrial
from autotune.studies.search import Known, ModelSearch
from autotune.studies.space import (
    CpuConfiguration,
    Figures,
    Limits,
    Metric,
    Objective,
    best,
    front,
    values,
)

SCHEMA_VERSION = 1
_SHOWN: dict[Metric, Callable[[float], str]] = {
    "time_s": "{:.4g} s".format,
    "energy_j": "{:.4g} J".format,
    "celsius": "{:.1f} C".format,
    "memory_bytes": lambda size: f"{size / 2**20:.1f} MiB",
}


@dataclass(frozen=True)
class Found:
    """Valid measurements of a search, with the figures that count.

    Attributes:
        trials: Trials that have figures.
        figures: Figures of each trial, from its last and most frequent measurement.
        repeated: Indices of trials that were measured again.
        best: Index of the best trial. Trials that were measured again take precedence if one keeps the limits. None
            if no trial keeps the limits.
    """

    trials: tuple[StudyTrial, ...]
    figures: tuple[Figures, ...]
    repeated: tuple[int, ...]
    best: int | None


def found_of(request: StudyRequest, outcome: Outcome) -> Found:
    """Returns the measurements of an outcome that count."""
    measured = tuple(t for t in outcome.trials if t.figures is not None)
    figures = tuple(_final_figures(t, outcome.finals) for t in measured)
    again = {f.configuration for f in outcome.finals}
    repeated = tuple(i for i, t in enumerate(measured) if t.configuration in again)
    winner = _of(repeated, request.objective, request.limits, figures)
    if winner is None:
        winner = best(request.objective, request.limits, figures)
    return Found(measured, figures, repeated, winner)


def nearest_text(found: Found, limits: Limits, names: Sequence[str]) -> str:
    """Describes the measurement that breaks the limits least, and by how much, for a search without a best."""
    if not found.figures:
        return ""
    at = min(range(len(found.figures)), key=lambda i: max(limits.excess(found.figures[i])))
    broken = [
        f"{_SHOWN[name](getattr(found.figures[at], name))} where the limit is "
        f"{_SHOWN[name](getattr(limits, name))}"
        for name, excess in zip(limits.names, limits.excess(found.figures[at]), strict=True)
        if excess > 0
    ]
    return (
        f"the nearest, {found.trials[at].configuration.text(names)}, takes {' and '.join(broken)}"
    )


def result(
    study: Study, evaluator: Evaluator, outcome: Outcome, *, searched: int | None = None
) -> dict[str, Any]:
    """Returns the results of a search as plain data; see docs/cpu-config.md for the schema.

    Args:
        study: The study.
        evaluator: The evaluator that measured.
        outcome: The outcome.
        searched: Number of the search's own trials, if the rest of the space was measured after it; None for all.
    """
    request = study.request
    names = [cluster.name for cluster in evaluator.clusters]
    settled = found_of(request, outcome)
    measured, figures, winner = settled.trials, settled.figures, settled.best

    def point(index: int) -> dict[str, Any]:
        return _point(measured[index], figures[index], outcome.finals, names)

    # Points from one lucky run would look better than they are, so repeated ones count if there are any.
    pool = settled.repeated or range(len(figures))
    named = named_points(request.limits, [figures[i] for i in pool])
    own = next((f for f in outcome.finals if f.configuration is None), None)
    on_front = _front(request.limits, figures)
    found: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "device": evaluator.device,
        "emulated": bool(evaluator.device.get("emulated")),
        "objective": request.objective,
        "limits": request.limits.to_json(),
        "space": request.space.size,
        "n_measured": len(outcome.trials),
        "n_failed": len(outcome.trials) - len(measured),
        "best": point(winner) if winner is not None else None,
        "points": {name: point(pool[i]) for name, i in named.items()},
        "pareto": [point(i) for i in on_front],
        "default": _final_point(own, names) if own else None,
        "model_error": model_error(study, outcome.trials),
        "reference": [reference.to_json() for reference in outcome.references],
        "challenges": list(outcome.verdicts),
        "marks": [*outcome.marks, *_marks(measured)],
        "exhaustive": exhaustive(study, outcome.trials, searched),
        "others": [_trial(trial, names) for trial in outcome.others],
    }
    if winner is not None and own is not None:
        found["against_default"] = _against(
            measured[winner].configuration, outcome.finals, request.seed
        )
    return found


def _of(
    indices: Sequence[int], objective: Objective, limits: Limits, figures: Sequence[Figures]
) -> int | None:
    """Returns the best of the given indices."""
    at = best(objective, limits, [figures[i] for i in indices])
    return None if at is None else indices[at]


def exhaustive(
    study: Study, trials: Sequence[StudyTrial], searched: int | None
) -> dict[str, Any] | None:
    """Returns how far a search was from the optimum of a completely measured space; None if it was not.

    Each configuration's own trial is used. Repeated measurements count for neither side.
    """
    request = study.request
    if len(trials) < request.space.size:
        return None
    ordered = sorted(trials, key=lambda t: t.number)
    measured = [t for t in ordered if t.figures is not None]
    figures = [t.figures for t in measured if t.figures is not None]
    optimum = best(request.objective, request.limits, figures)
    if optimum is None:
        return None
    first = {t.number for t in ordered[:searched]}
    early = [f for t, f in zip(measured, figures, strict=True) if t.number in first]
    found = best(request.objective, request.limits, early)
    single: Objective = "edp" if request.objective == "pareto" else request.objective
    least = values(single, figures[optimum])[0]
    names = [cluster.name for cluster in request.space.clusters]
    return {
        "optimum": {
            **measured[optimum].configuration.to_json(names),
            "time_s": figures[optimum].time_s,
            "energy_j": figures[optimum].energy_j,
        },
        "found_after": 1 + ordered.index(measured[optimum]),
        "searched": len(first),
        "gap": None if found is None else values(single, early[found])[0] / least - 1,
    }


def model_error(study: Study, trials: Sequence[StudyTrial]) -> dict[str, Any]:
    """Returns how well the models predict measurements, and their constants."""
    request = study.request
    known = [
        Known(request.space.number(t.configuration), t.figures)
        for t in trials
        if t.figures is not None
    ]
    search = ModelSearch(request.space, request.objective, request.limits, seed=request.seed)
    surrogate = search.fit(known) if len(known) > 1 else None
    if surrogate is None:
        return {}
    names = [cluster.name for cluster in request.space.clusters]
    ahead = [
        abs(t.belief.time_s / t.figures.time_s - 1)
        for t in trials
        if t.belief is not None and t.figures is not None
    ]
    return {
        "left_out": surrogate.errors(),
        "ahead_time": sorted(ahead)[len(ahead) // 2] if ahead else None,
        "constants": constants(surrogate.time, surrogate.power, names),
    }


def _marks(trials: Sequence[StudyTrial]) -> list[str]:
    """Returns reasons to doubt the figures of the whole study."""
    figures = [t.figures for t in trials if t.figures is not None]
    watts = [f.energy_j / f.time_s for f in figures if f.energy_j is not None]
    return [mark for mark in (one_ceiling(watts),) if mark]


def _trial(trial: StudyTrial, names: Sequence[str]) -> dict[str, Any]:
    """Returns a trial as a run's events store it."""
    return {
        **trial.proposal(names),
        "status": trial.status,
        "message": trial.message,
        "figures": asdict(trial.figures) if trial.figures else None,
        "marks": list(trial.marks),
        "khz": trial.seen_khz,
    }


def _front(limits: Limits, figures: Sequence[Figures]) -> list[int]:
    kept = [i for i, f in enumerate(figures) if limits.kept(f) and f.energy_j is not None]
    on_front = [kept[i] for i in front([values("pareto", figures[i]) for i in kept])]
    return sorted(on_front, key=lambda i: figures[i].time_s)


def _final_figures(trial: StudyTrial, finals: Sequence[Final]) -> Figures:
    """Returns the figures of the last and most frequent measurement."""
    again = next((f for f in finals if f.configuration == trial.configuration), None)
    if again is not None:
        return again.figures
    assert trial.figures is not None
    return trial.figures


def best_point(found: Found, outcome: Outcome, names: Sequence[str]) -> dict[str, Any]:
    """Returns the best point as a result stores it; there must be one."""
    assert found.best is not None
    return _point(found.trials[found.best], found.figures[found.best], outcome.finals, names)


def _point(
    trial: StudyTrial,
    figures: Figures,
    finals: Sequence[Final],
    names: Sequence[str],
) -> dict[str, Any]:
    again = next((f for f in finals if f.configuration == trial.configuration), None)
    if again is not None:
        return _final_point(again, names)
    return {
        **trial.configuration.to_json(names),
        "time_s": figures.time_s,
        "energy_j": figures.energy_j,
        "deviation_j": figures.deviation_j,
        "celsius": figures.celsius,
        "memory_bytes": figures.memory_bytes,
        "ci": None,
        "rails": {},
        "seen_khz": trial.seen_khz,
        "marks": list(trial.marks),
    }


def _final_point(final: Final, names: Sequence[str]) -> dict[str, Any]:
    shown = final.configuration.to_json(names) if final.configuration else {"clusters": None}
    return {
        **shown,
        "time_s": final.figures.time_s,
        "energy_j": final.figures.energy_j,
        "deviation_j": final.figures.deviation_j,
        "celsius": final.figures.celsius,
        "memory_bytes": final.figures.memory_bytes,
        "ci": {
            "time_s": final.time_s.ends,
            "energy_j": final.energy_j.ends if final.energy_j else None,
            "memory_bytes": final.memory_bytes.ends if final.memory_bytes else None,
            "blocks": len(final.blocks),
        },
        "rails": final.rails,
        "seen_khz": final.seen_khz,
        "marks": list(final.marks),
    }


def _against(
    configuration: CpuConfiguration, finals: Sequence[Final], seed: int
) -> dict[str, Any] | None:
    """Returns the ratio of the default to the best, from blocks in which both were measured."""
    mine = next((f for f in finals if f.configuration == configuration), None)
    own = next((f for f in finals if f.configuration is None), None)
    if mine is None or own is None:
        return None
    both = in_both(own.blocks, mine.blocks)
    found: dict[str, Any] = {}
    for name in ("time_s", "energy_j"):
        ratio = figures_ratio(both, name, (own.figures, mine.figures), seed)
        if ratio is not None:
            doubtful = name == "energy_j" and bool(own.marks or mine.marks)
            found[name] = {**ratio, "doubtful": doubtful}
    return found
