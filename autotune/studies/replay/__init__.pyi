from .replay import read, search
from .traces import MISSING, read_traces

__all__ = [
    "MISSING",
    "read",
    "read_traces",
    "search",
]
