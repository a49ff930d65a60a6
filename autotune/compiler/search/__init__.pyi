from .cost_model import Lesson, ScheduleRanker
from .lane import Lane

__all__ = [
    "Lane",
    "Lesson",
    "ScheduleRanker",
]
