"""Finds the cause of a process's end: a crash, a kill from outside, or the system's out-of-memory killer."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

LOGGER = logging.getLogger("autotune.workers")
Kill = Literal["", "outside", "memory"]
"""How an innocent process ended: by a signal from outside, or by the out-of-memory killer. Empty for other ends."""
Notify = Callable[[str], None]
MOST_KILLS = 3
"""Number of kills from outside after which a request fails."""
MOST_MEMORY_KILLS = 2
"""Number of kills by the out-of-memory killer, with no other job running, after which a request fails."""
_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
)
_CGROUPS = Path("/sys/fs/cgroup")


def warn(text: str) -> None:
    """Logs a kill as a warning."""
    LOGGER.warning("%s", text)


def of_outside(code: int | None) -> bool:
    """Returns whether an exit code, as in `subprocess`, is that of a kill from outside, not of a crash."""
    return code is not None and code < 0 and -code in _FROM_OUTSIDE


def oom_kills() -> int:
    """Returns the number of out-of-memory kills in this control group, or in the system if there is no group."""
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
    """Returns the files with this count, nearest first: of control groups (both versions), then of the system."""
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
