"""Final measurements of a study: the best few and the default, interleaved, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from autotune.measurement import Interval, bootstrap_median, median, paired_speedup
from autotune.studies.evaluators import Evaluator, Measured
from autotune.studies.run.interleaving import figures_of, interleaved_blocks
from autotune.studies.run.study import StudyTrial
from autotune.studies.space import (
    CpuConfiguration,
    Figures,
    Limits,
    Objective,
    best,
    front,
    knee,
    values,
)

_NORMAL = 1.96
BEST = 3
"""Number of best configurations, by the objective, that are measured again."""
MOST = 6
"""Most configurations that are measured again, beside the default."""


@dataclass(frozen=True)
class Final:
    """A configuration measured in several blocks.

    Attributes:
        configuration: None for the default.
        figures: Medians over the blocks.
        time_s: Seconds of a step, with interval.
        energy_j: Joules of a step, with interval; None without a meter.
        blocks: Figures by block. A block without a valid measurement is missing.
        rails: Joules of a step by rail, medians over the blocks; empty unless the meter has several rails.
        memory_bytes: Memory of the process, with interval; None if it was not observed.
        marks: Reasons to doubt the energy of a block.
        seen_khz: Mean clock of each cluster, if it could be read, medians over the blocks.
    """

    configuration: CpuConfiguration | None
    figures: Figures
    time_s: Interval
    energy_j: Interval | None
    blocks: Mapping[int, Figures]
    rails: dict[str, float] = field(default_factory=dict)
    memory_bytes: Interval | None = None
    marks: tuple[str, ...] = ()
    seen_khz: dict[str, float] = field(default_factory=dict)


def contenders(
    objective: Objective, limits: Limits, trials: Sequence[StudyTrial]
) -> list[CpuConfiguration]:
    """Returns configurations worth measuring again: the best by the objective, the named points, and further ones.

    Further ones are the next best; for a Pareto study, points along the front. The list is empty if nothing keeps
    the limits.
    """
    measured = [t for t in trials if t.figures is not None]
    figures = [t.figures for t in measured if t.figures is not None]
    kept = [i for i, f in enumerate(figures) if limits.kept(f)]
    if not kept:
        return []
    if objective == "pareto":
        winner = best(objective, limits, figures)
        ranked = [] if winner is None else [winner]
        more = sorted(
            (kept[i] for i in front([values("pareto", figures[i]) for i in kept])),
            key=lambda i: figures[i].time_s,
        )
    else:
        ranked = sorted(kept, key=lambda i: values(objective, figures[i]))
        more = ranked[BEST:]
    named = named_points(limits, figures).values()
    wanted = dict.fromkeys([*ranked[:BEST], *named, *more])
    return [measured[i].configuration for i in wanted][:MOST]


def named_points(limits: Limits, figures: Sequence[Figures]) -> dict[str, int]:
    """Returns indices of named points: fastest, least energy, least product, knee, frugal within the deadline.

    All keep the limits of temperature and memory. The deadline applies only to the point named after it, and the
    energy budget to none. The points show the trade-off between time and energy.
    """
    found: dict[str, int] = {}
    bearable = replace(limits, time_s=None, energy_j=None)
    every = [i for i, f in enumerate(figures) if bearable.kept(f)]
    if not every:
        return found

    def put(name: str, objective: Objective, kept: Limits) -> None:
        index = best(objective, kept, figures)
        if index is not None:
            found[name] = index

    put("fastest", "latency", bearable)
    if all(f.energy_j is not None for f in figures):
        put("least_energy", "energy", bearable)
        put("least_edp", "edp", bearable)
        ends = [every[i] for i in front([values("pareto", figures[i]) for i in every])]
        at = knee([values("pareto", figures[i]) for i in ends]) if len(ends) > 2 else None
        if at is not None:
            found["knee"] = ends[at]
        if limits.time_s is not None:
            put("least_energy_in_time", "energy", replace(limits, energy_j=None))
    return found


def measure_again(
    evaluator: Evaluator,
    configurations: Sequence[CpuConfiguration],
    *,
    blocks: int,
    seed: int,
    on_measured: Callable[[CpuConfiguration | None, Measured], None] = lambda *_: None,
    interrupted: Callable[[], bool] = lambda: False,
    earlier: Sequence[tuple[CpuConfiguration | None, Measured]] = (),
) -> list[Final]:
    """Measures configurations and the default in blocks, in random order within each.

    Args:
        evaluator: Measures configurations.
        configurations: Configurations to measure beside the default.
        blocks: How often each is measured.
        seed: Seed of the orders and the bootstrap.
        on_measured: Called with every measurement.
        interrupted: Called before each measurement; returns whether to stop. Earlier measurements count.
        earlier: Measurements of the same by earlier parts of the run, in order. Completed blocks count.
    """
    everyone: list[CpuConfiguration | None] = [*configurations, None]
    found = interleaved_blocks(
        [partial(evaluator.measure, one) for one in everyone],
        blocks=blocks,
        seed=seed,
        on_measured=lambda side, measured, _: on_measured(everyone[side], measured),
        interrupted=interrupted,
        earlier=[
            (everyone.index(one) if one in everyone else len(everyone), measured)
            for one, measured in earlier
        ],
    )
    return [final_of(everyone[side], runs, seed) for side, runs in enumerate(found) if runs]


def final_of(
    configuration: CpuConfiguration | None, measured: Mapping[int, Measured], seed: int
) -> Final:
    """Summarises blocks, all of which have figures.

    Args:
        configuration: The configuration.
        measured: Measurements by block; at least one.
        seed: Seed of the bootstrap.
    """
    known = figures_of(measured)
    runs, blocks = list(measured.values()), list(known.values())
    time_s = bootstrap_median([f.time_s for f in blocks], positive=True, seed=seed)
    joules = [f.energy_j for f in blocks if f.energy_j is not None]
    doubts = [f.deviation_j for f in blocks if f.deviation_j is not None]
    energy_j = None
    if len(joules) == len(blocks):
        # The spread of blocks shows their noise, but not a common error of the meter and the baseline.
        energy_j = widened(
            bootstrap_median(joules, positive=False, seed=seed), median(doubts) if doubts else 0.0
        )
    hottest = [f.celsius for f in blocks if f.celsius is not None]
    memory = [f.memory_bytes for f in blocks if f.memory_bytes is not None]
    return Final(
        configuration,
        Figures(
            time_s.estimate,
            energy_j.estimate if energy_j else None,
            max(hottest, default=None),
            max(memory, default=None),
            median(doubts) if doubts else None,
        ),
        time_s,
        energy_j,
        known,
        {
            name: median([run.rails[name] for run in runs if name in run.rails])
            for name in runs[0].rails
        },
        bootstrap_median(memory, positive=True, seed=seed) if len(memory) == len(blocks) else None,
        tuple(dict.fromkeys(mark for run in runs for mark in run.marks)),
        {
            name: median([run.seen_khz[name] for run in runs if name in run.seen_khz])
            for name in runs[0].seen_khz
        },
    )


def widened(interval: Interval, deviation: float) -> Interval:
    """Widens a 95 % interval by a standard uncertainty that more blocks do not reduce, added in quadrature."""
    more = _NORMAL * deviation
    return Interval(
        interval.estimate,
        interval.estimate - math.hypot(interval.estimate - interval.low, more),
        interval.estimate + math.hypot(interval.high - interval.estimate, more),
    )


def widened_ratio(interval: Interval, deviation: float) -> Interval:
    """Widens an interval of a ratio on a logarithmic scale by a relative uncertainty; see `widened`."""
    if not (interval.low > 0 and math.isfinite(interval.high)):
        return interval
    logs = [math.log(x) for x in (interval.estimate, interval.low, interval.high)]
    wide = widened(Interval(*logs), deviation)
    return Interval(interval.estimate, math.exp(wide.low), math.exp(wide.high))


def figures_ratio(
    pairs: Sequence[tuple[Figures, Figures]],
    name: str,
    doubtful: Sequence[Figures],
    seed: int,
) -> dict[str, Any] | None:
    """Returns the ratio of the first of each pair to the second, its interval and a verdict.

    The result has `ratio`, `ci`, and a `verdict` that tells whether the second is significantly `better` or
    `worse`.

    Args:
        pairs: Figures measured in the same blocks.
        name: `time_s` or `energy_j`.
        doubtful: Figures of both sides. More blocks do not reduce the deviations of their joules.
        seed: Seed of the bootstrap.

    Returns:
        None if a block did not measure the figure.
    """
    values = [(getattr(a, name), getattr(b, name)) for a, b in pairs]
    if not values or any(value is None or value <= 0 for pair in values for value in pair):
        return None
    ratio = paired_speedup([a for a, _ in values], [b for _, b in values], seed=seed)
    if name == "energy_j":
        parts = [(side.deviation_j or 0.0) / (side.energy_j or math.inf) for side in doubtful]
        ratio = widened_ratio(ratio, math.hypot(*parts))
    better, worse = ratio.low > 1, ratio.high < 1
    return {
        "ratio": ratio.estimate,
        "ci": ratio.ends,
        "verdict": "better" if better else "worse" if worse else "tie",
    }
