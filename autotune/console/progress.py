"""Progress on stderr, with the time that is left."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from autotune.console.logs import LOGGER
from autotune.errors import printable
from autotune.waits import AGAIN_S, telling

_PREPARING = 2
"""Reports of a phase before its pace is known."""


class LiveProgress:
    """Shows a run's progress with its ETA on stderr.

    If stderr is not a terminal, it prints a line every ten seconds at most.

    It also reports waits.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn(
                "{task.fields[detail]}",
                table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            ),
            console=self._console,
            transient=True,
            expand=True,
            disable=not self._console.is_terminal or LOGGER.getEffectiveLevel() > 30,
        )
        self._task: Any = None
        self._name = ""
        self._total = 0
        self._reported_s = -math.inf
        self._reports = 0
        self._since = 0, -math.inf
        """What was done, and when, from which on the pace is taken."""
        self._waits = ExitStack()

    def __enter__(self) -> LiveProgress:
        self._waits.enter_context(telling(self._wait))
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._waits.close()

    def notice(self, text: str) -> None:
        if LOGGER.getEffectiveLevel() <= 30:
            self._console.print(printable(text), markup=False)

    def phase(self, name: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=total, detail="")
        self._name, self._total, self._reports = name, total, 0
        if not self._console.is_terminal and total:
            self._tell(f"{name}: 0/{total}")

    def at(self, name: str, done: int, total: int) -> None:
        """Shows the progress of a phase. The phase begins when it is first named."""
        if name != self._name:
            self.phase(name, total)
        self.step(done, "")

    def step(self, done: int, text: str) -> None:
        self._bar.update(self._task, completed=min(done, self._total), detail=printable(text))
        now = time.monotonic()
        self._reports += 1
        # The first report may be of an earlier part of the run. The first result takes longer than others.
        if self._reports <= _PREPARING:
            self._since = done, now
        if not self._console.is_terminal and self._silent():
            before, began = self._since
            pace = (now - began) / (done - before) if done > before else None
            left = "" if pace is None else f", about {pace * (self._total - done):.0f} s left"
            self._tell(f"{self._name}: {done}/{self._total}{left}")

    def _wait(self, text: str) -> None:
        """Reports a wait. Of many short waits, one in ten seconds is reported."""
        if self._console.is_terminal and self._task is not None:
            self._bar.update(self._task, detail=f"waiting: {text}")
        elif self._silent():
            self._tell(f"autotune: waiting: {text}")

    def _silent(self) -> bool:
        return time.monotonic() - self._reported_s >= AGAIN_S

    def _tell(self, text: str) -> None:
        self._reported_s = time.monotonic()
        self.notice(text)
