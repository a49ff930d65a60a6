"""What a search over CPU configurations chooses from and looks for: configurations, ranges, objectives, Pareto fronts."""

from autotune.studies.space import objective
from autotune.studies.space.applied import apply
from autotune.studies.space.clocks import Clocks, Floats
from autotune.studies.space.configuration import ClusterSetting, CpuConfiguration
from autotune.studies.space.objective import (
    NO_LIMITS,
    OBJECTIVES,
    Figures,
    Limits,
    Metric,
    Objective,
    best,
    needs_energy,
    value_names,
    values,
)
from autotune.studies.space.pareto import front, gain, hypervolume, improvement, knee
from autotune.studies.space.ranges import CpuRanges, read_ranges
from autotune.studies.space.space import LARGEST_LISTED, CpuSpace, Indices, threads_of
from autotune.studies.space.texts import (
    DEFAULT_POINT,
    GAINS,
    compared_text,
    configuration_text,
    doubts,
    exhaustive_text,
    fronts_text,
    gain_text,
    interval_text,
    joules_text,
    moving_text,
    placement_texts,
    ratio_text,
)

__all__ = [
    "apply",
    "best",
    "Clocks",
    "ClusterSetting",
    "compared_text",
    "configuration_text",
    "CpuConfiguration",
    "CpuRanges",
    "CpuSpace",
    "DEFAULT_POINT",
    "doubts",
    "exhaustive_text",
    "Figures",
    "Floats",
    "front",
    "fronts_text",
    "gain",
    "gain_text",
    "GAINS",
    "hypervolume",
    "improvement",
    "Indices",
    "interval_text",
    "joules_text",
    "knee",
    "LARGEST_LISTED",
    "Limits",
    "Metric",
    "moving_text",
    "needs_energy",
    "NO_LIMITS",
    "objective",
    "Objective",
    "OBJECTIVES",
    "placement_texts",
    "ratio_text",
    "read_ranges",
    "threads_of",
    "value_names",
    "values",
]
