"""Runs `autotune` as a user does, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

AUTOTUNE = [sys.executable, "-m", "autotune"]


def autotune(
    *arguments: str | Path, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [*AUTOTUNE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )


def one_folder(logs: Path) -> Path:
    """The only run folder in there."""
    (folder,) = logs.iterdir()
    return folder
