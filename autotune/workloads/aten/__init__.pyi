from .program import Program
from .registry import operators
from .steps import lower_step
from .trace import trace_step

__all__ = ["lower_step", "operators", "Program", "trace_step"]
