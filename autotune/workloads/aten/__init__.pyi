from .program import Program
from .ranges import index_ranges
from .registry import aten_operators
from .steps import lower_step
from .trace import trace_step

__all__ = ["lower_step", "aten_operators", "index_ranges", "Program", "trace_step"]
