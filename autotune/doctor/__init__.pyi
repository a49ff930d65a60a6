from .check import Check, is_ready
from .checks import run_checks

__all__ = [
    "Check",
    "is_ready",
    "run_checks",
]
