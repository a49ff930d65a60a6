"""The result of a check, and the commands that fix problems."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "broken", "optional"]


@dataclass(frozen=True)
class Check:
    """The result of checking one thing.

    Attributes:
        name: The thing.
        status: `ok`; `missing`; `broken`: there, but unusable; `optional`: absent or not at its best, but needed
            only for some work.
        found: Its version or path, or the problem.
        needed_for: Work that is impossible without it.
        fix: The exact command that fixes it; empty when there is nothing to do.
        required: Whether tuning for this machine's processor needs it.
    """

    name: str
    status: Status
    found: str
    needed_for: str
    fix: str = ""
    required: bool = False


def is_ready(checks: Iterable[Check]) -> bool:
    """Returns whether everything that tuning for this machine's processor needs exists and works."""
    return all(check.status == "ok" for check in checks if check.required)


def absent(name: str, found: str, needed_for: str, fix: str, *, required: bool = False) -> Check:
    """Returns the check of an absent thing: `missing` if it is required, else `optional`."""
    status: Status = "missing" if required else "optional"
    return Check(name, status, found, needed_for, fix, required)


def install_packages(*packages: str) -> str:
    """Returns the command that installs Debian packages, or a sentence if there is no apt-get."""
    if shutil.which("apt-get") is None:
        return f"install {', '.join(packages)} (Debian's names) with this system's package manager"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get install -y {' '.join(packages)}"


def run_python(code: str) -> str:
    """Returns the command that runs a line of Python in this environment."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"
