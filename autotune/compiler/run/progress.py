"""What a run tells its user while it works; the CLI draws it, tests collect it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the milestones of a run. Seconds unless the name says otherwise."""

    def notice(self, text: str) -> None:
        """A line the user should see, such as that a stand-in is measured."""

    def phase(self, name: str, total: int) -> None:
        """A phase of `total` steps begins."""

    def step(self, done: int, text: str) -> None:
        """So many steps of the phase are done, the last of which `text` describes."""
