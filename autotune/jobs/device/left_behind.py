"""What died runs have left changed on devices."""

from __future__ import annotations

import sys

from autotune.devices import LeftBehind, discovery, journal


def still_there() -> list[LeftBehind]:
    """What runs that died have left changed, on devices that are not models of ended processes."""
    return journal.without_models(journal.left_behind())


def restore_left_behind() -> None:
    """Undoes what died runs have left changed, before a run that changes devices itself, and says so on stderr."""
    for left, failures in journal.restore(still_there(), discovery.reach):
        said = (
            f"not undone: {'; '.join(failures)}" if failures else "undone what an earlier run left"
        )
        print(f"autotune: {left.serial}: {said}", file=sys.stderr)
