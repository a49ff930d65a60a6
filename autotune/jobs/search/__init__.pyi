from .replaying import ReplayRequest, ReplayResult, replay
from .searching import Search

__all__ = [
    "replay",
    "ReplayRequest",
    "ReplayResult",
    "Search",
]
