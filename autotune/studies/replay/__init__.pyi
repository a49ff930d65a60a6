from .replay import Replayed, TableBench, read, search
from .traces import MISSING, read_traces

__all__ = [
    "MISSING",
    "read",
    "read_traces",
    "Replayed",
    "search",
    "TableBench",
]
