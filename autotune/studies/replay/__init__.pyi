from .replay import Replayed, TableEvaluator, read, search
from .traces import MISSING, read_traces

__all__ = [
    "MISSING",
    "read",
    "read_traces",
    "Replayed",
    "search",
    "TableEvaluator",
]
