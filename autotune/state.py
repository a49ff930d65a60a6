"""The folder for what this user's processes leave to later ones."""

from __future__ import annotations

import os
from pathlib import Path


def state_root() -> Path:
    """Returns `$XDG_STATE_HOME/autotune`, or `~/.local/state/autotune`."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    base = Path(chosen) if chosen.startswith("/") else Path.home() / ".local" / "state"
    return base / "autotune"
