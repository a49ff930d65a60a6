"""What the machine has and lacks for each kind of work, with the command that mends it."""

from autotune.doctor.check import Check, is_ready
from autotune.doctor.checks import run_checks

__all__ = [
    "Check",
    "is_ready",
    "run_checks",
]
