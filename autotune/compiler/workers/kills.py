"""Whose fault it is that a process ended: a crash, a kill from outside, or the system's out-of-memory killer."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

LOGGER = logging.getLogger("autotune.workers")
Kill = Literal["", "outside", "memory"]
"""How a process ended that did nothing wrong: by a signal from outside, or by the out-of-memory killer."""
Told = Callable[[str], None]
MOST_KILLS = 3
"""Kills from outside that a request survives."""
MOST_MEMORY_KILLS = 2
"""Kills by the out-of-memory killer, with nothing else at work, that tell that a request needs too much memory."""
_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
)
_CGROUPS = Path("/sys/fs/cgroup")


def warn(text: str) -> None:
    """Tells of a kill in the log."""
    LOGGER.warning("%s", text)


def of_outside(code: int | None) -> bool:
    """Whether an exit code, as `subprocess` gives it, is that of a kill from outside, not of a crash."""
    return code is not None and code < 0 and -code in _FROM_OUTSIDE


def oom_kills() -> int:
    """Processes that the out-of-memory killer has ended: of this control group, or of the system without one."""
    for path in _counters():
        try:
            for line in path.read_text(encoding="ascii").splitlines():
                key, _, value = line.partition(" ")
                if key == "oom_kill":
                    return int(value)
        except (OSError, ValueError):
            continue
    return 0


@cache
def _counters() -> tuple[Path, ...]:
    """Files that tell it, the nearest first: of control groups of either version, then of the system."""
    found = []
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        groups = []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        own = path.strip("/")
        if controllers == "":
            found += [_CGROUPS / own / "memory.events", _CGROUPS / "memory.events"]
        elif "memory" in controllers.split(","):
            root = _CGROUPS / "memory"
            found += [root / own / "memory.oom_control", root / "memory.oom_control"]
    return (*found, Path("/proc/vmstat"))
