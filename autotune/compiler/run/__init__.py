"""A kernel run from request to result: budget, trials, warm start, final benchmark, records, resume."""

from autotune.compiler.run.experience import Experiences, experiences
from autotune.compiler.run.known import known_schedules
from autotune.compiler.run.run_records import databases_at, identity_of
from autotune.compiler.run.tune import KernelRun

__all__ = [
    "databases_at",
    "experiences",
    "Experiences",
    "identity_of",
    "KernelRun",
    "known_schedules",
]
