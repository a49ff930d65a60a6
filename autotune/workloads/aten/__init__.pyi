from .program import Operation, Prepared, Program, Ref, Source
from .ranges import index_ranges
from .registry import aten_operators
from .steps import lower_step

__all__ = [
    "lower_step",
    "aten_operators",
    "index_ranges",
    "Operation",
    "Prepared",
    "Program",
    "Ref",
    "Source",
]
