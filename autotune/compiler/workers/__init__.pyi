from .kills import Notify, of_outside, oom_kills, warn
from .workers import (
    Job,
    Kills,
    Message,
    ToolKilled,
    Worker,
    WorkerLost,
    WorkerPool,
    die_with_parent,
    killed_by,
    serve,
)

__all__ = [
    "die_with_parent",
    "Job",
    "killed_by",
    "Kills",
    "Message",
    "Notify",
    "of_outside",
    "oom_kills",
    "serve",
    "ToolKilled",
    "warn",
    "Worker",
    "WorkerLost",
    "WorkerPool",
]
