from .cost_model import Lesson, ScheduleRanker
from .formulation_search import FormulationSearch

__all__ = [
    "FormulationSearch",
    "Lesson",
    "ScheduleRanker",
]
