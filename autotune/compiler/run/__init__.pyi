from .experience import Experiences, experiences
from .known import known_schedules
from .run_records import databases_at, identity_of
from .tune import KernelRun

__all__ = [
    "databases_at",
    "Experiences",
    "experiences",
    "identity_of",
    "KernelRun",
    "known_schedules",
]
