"""Milestones that a run reports. The CLI shows them; tests collect them."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the milestones of a run. Times are in seconds unless the name says otherwise."""

    def notice(self, text: str) -> None:
        """Reports a line that the user should see, such as that a stand-in is measured."""

    def phase(self, name: str, total: int) -> None:
        """Begins a phase of `total` steps."""

    def step(self, done: int, text: str) -> None:
        """Reports that `done` steps of the phase are done; `text` describes the last one."""
