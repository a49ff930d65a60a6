from .logs import LOGGER, is_quiet, is_verbose, set_verbosity, stderr_log
from .progress import LiveProgress
from .signals import ended_by_signals, stop_on_interrupt

__all__ = [
    "ended_by_signals",
    "is_quiet",
    "is_verbose",
    "LiveProgress",
    "LOGGER",
    "set_verbosity",
    "stderr_log",
    "stop_on_interrupt",
]
