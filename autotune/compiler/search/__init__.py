"""The search for a kernel's schedule: one formulation's search, the XGBoost cost model, and schedules of similar kernels."""

from autotune.compiler.search.cost_model import Lesson, ScheduleRanker
from autotune.compiler.search.lane import Lane

__all__ = [
    "Lane",
    "Lesson",
    "ScheduleRanker",
]
