"""The last measurements of a study: the best few and the system's own choice, interleaved, with intervals."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autotune.measurement.statistics import Interval, bootstrap_median, median
from autotune.studies.bench import Bench, Measured
from autotune.studies.configuration import CpuConfiguration
from autotune.studies.objective import Figures, Limits, Objective, best, values
from autotune.studies.pareto import front, knee
from autotune.studies.study import StudyTrial

MOST = 4
"""Configurations that are measured again, beside the system's own choice."""


@dataclass(frozen=True)
class Final:
    """A configuration that was measured in several blocks.

    Attributes:
        configuration: None for the system's own choice.
        figures: Medians over the blocks.
        time_s: Seconds of a step, with interval.
        energy_j: Joules of a step, with interval; None without a meter.
        blocks: Figures of each block.
        rails: Joules of a step by rail, medians over the blocks; empty unless the meter has several.
        marks: What makes the energy of a block doubtful.
    """

    configuration: CpuConfiguration | None
    figures: Figures
    time_s: Interval
    energy_j: Interval | None
    blocks: tuple[Figures, ...]
    rails: dict[str, float] = field(default_factory=dict)
    marks: tuple[str, ...] = ()


def contenders(
    objective: Objective, limits: Limits, trials: Sequence[StudyTrial]
) -> list[CpuConfiguration]:
    """What is worth measuring again: the best by the objective; of a Pareto study, points along the front."""
    measured = [t for t in trials if t.figures is not None]
    figures = [t.figures for t in measured if t.figures is not None]
    kept = [i for i, f in enumerate(figures) if limits.kept(f)]
    if objective != "pareto":
        ranked = sorted(kept, key=lambda i: values(objective, figures[i]))
        return [measured[i].configuration for i in ranked[:MOST]]
    on_front = sorted(
        (kept[i] for i in front([values("pareto", figures[i]) for i in kept])),
        key=lambda i: figures[i].time_s,
    )
    # The ends, the knee and the least energy-delay product; then what lies between.
    ends = [on_front[0], on_front[-1]] if on_front else []
    at = knee([values("pareto", figures[i]) for i in on_front]) if len(on_front) > 2 else None
    wanted = [*ends, *([on_front[at]] if at is not None else [])]
    if (least := best("edp", limits, figures)) is not None:
        wanted.append(least)
    return [measured[i].configuration for i in dict.fromkeys([*wanted, *on_front])][:MOST]


def measure_again(
    bench: Bench,
    configurations: Sequence[CpuConfiguration],
    *,
    blocks: int,
    seed: int,
    told: Callable[[CpuConfiguration | None, Measured], None] = lambda *_: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[Final]:
    """Measures configurations and the system's own choice in blocks, in random order within each.

    Args:
        bench: Measures.
        configurations: What to measure beside the system's own choice.
        blocks: How often each is measured.
        seed: Of the orders and the bootstrap.
        told: Called with every measurement.
        interrupted: Asked before each block whether to stop; what is measured by then counts.
    """
    everyone: list[CpuConfiguration | None] = [*configurations, None]
    found: dict[int, list[Measured]] = {index: [] for index in range(len(everyone))}
    order = random.Random(seed)
    for _ in range(blocks):
        if interrupted():
            break
        turns = list(found)
        order.shuffle(turns)
        for turn in turns:
            measured = bench.measure(everyone[turn])
            told(everyone[turn], measured)
            if measured.figures is not None:
                found[turn].append(measured)
    return [_final(everyone[index], runs, seed) for index, runs in found.items() if runs]


def _final(configuration: CpuConfiguration | None, runs: list[Measured], seed: int) -> Final:
    blocks = [run.figures for run in runs if run.figures is not None]
    time_s = bootstrap_median([f.time_s for f in blocks], seed=seed)
    joules = [f.energy_j for f in blocks if f.energy_j is not None]
    energy_j = bootstrap_median(joules, seed=seed) if len(joules) == len(blocks) else None
    hottest = [f.celsius for f in blocks if f.celsius is not None]
    memory = [f.memory_bytes for f in blocks if f.memory_bytes is not None]
    return Final(
        configuration,
        Figures(
            time_s.estimate,
            energy_j.estimate if energy_j else None,
            max(hottest, default=None),
            max(memory, default=None),
        ),
        time_s,
        energy_j,
        tuple(blocks),
        {
            name: median([run.rails[name] for run in runs if name in run.rails])
            for name in runs[0].rails
        },
        tuple(dict.fromkeys(mark for run in runs for mark in run.marks)),
    )
