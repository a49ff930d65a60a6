"""Changes that runs left on devices when they died."""

from __future__ import annotations

import sys

from autotune.devices import LeftBehind, discovery, journal


def still_there() -> list[LeftBehind]:
    """Returns changes left by runs that died, except on models whose processes have ended."""
    return journal.without_models(journal.left_behind())


def restore_left_behind() -> None:
    """Undoes changes left by runs that died, and says so on stderr.

    Called before a run that changes devices itself.
    """
    for left, failures in journal.restore(still_there(), discovery.reach):
        said = (
            f"not undone: {'; '.join(failures)}" if failures else "undone what an earlier run left"
        )
        print(f"autotune: {left.serial}: {said}", file=sys.stderr)
