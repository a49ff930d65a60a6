"""Progress on stderr, with the time that is left."""

from __future__ import annotations

import math
import threading
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
"""Reports of a long phase before its pace is known."""
_SHORT = 10
"""Length of a phase whose pace is known after the first report."""


class LiveProgress:
    """Shows a run's progress with its ETA on stderr.

    If stderr is not a terminal, it prints a line every ten seconds, whether something has ended meanwhile or not.

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
        self._total = self._done = 0
        self._began_s = self._reported_s = self._waited_s = -math.inf
        self._reports = 0
        self._since = 0, -math.inf
        """What was done, and when, from which on the pace is taken."""
        self._pace: float | None = None
        self._one_at_a_time = threading.RLock()
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._repeat, name="progress", daemon=True)
        self._waits = ExitStack()

    def __enter__(self) -> LiveProgress:
        self._waits.enter_context(telling(self._wait))
        self._bar.start()
        if not self._console.is_terminal:
            self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._beat.ident is not None:
            self._beat.join()
        self._bar.stop()
        self._waits.close()

    def notice(self, text: str) -> None:
        if LOGGER.getEffectiveLevel() <= 30:
            self._console.print(printable(text), markup=False)

    def phase(self, name: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=total, detail="")
        with self._one_at_a_time:
            self._name, self._total, self._done, self._reports = name, total, 0, 0
            self._began_s, self._pace = time.monotonic(), None
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
        with self._one_at_a_time:
            self._done = done
            self._reports += 1
            # The first report may be of an earlier part of the run. The first result takes longer than others.
            if self._reports <= (_PREPARING if self._total >= _SHORT else 1):
                self._since = done, now
            before, began = self._since
            self._pace = (now - began) / (done - before) if done > before else None
            if not self._console.is_terminal and self._silent():
                self._tell(self._text(now, ""))

    def _repeat(self) -> None:
        """Reports a phase again in which nothing has ended for ten seconds. A wait reports itself."""
        pause = AGAIN_S
        while not self._ended.wait(pause):
            with self._one_at_a_time:
                now = time.monotonic()
                due = max(self._reported_s + AGAIN_S, self._waited_s + 1.5 * AGAIN_S)
                if now >= due and self._total:
                    self._tell(self._text(now, f", {now - self._began_s:.0f} s so far"))
                    due = now + AGAIN_S
                pause = min(max(0.1, due - now), AGAIN_S)

    def _text(self, now: float, otherwise: str) -> str:
        """Describes the phase, with the time that is left if it is known."""
        text = f"{self._name}: {self._done}/{self._total}"
        if self._pace is None or self._done >= self._total:
            return text + otherwise
        before, began = self._since
        ended = began + self._pace * (self._done - before)
        left = max(0.0, ended + self._pace * (self._total - self._done) - now)
        return f"{text}, about {left:.0f} s left"

    def _wait(self, text: str) -> None:
        """Reports a wait. Of many short waits, one in ten seconds is reported."""
        if self._console.is_terminal and self._task is not None:
            self._bar.update(self._task, detail=f"waiting: {text}")
            return
        with self._one_at_a_time:
            self._waited_s = time.monotonic()
            if self._silent():
                self._tell(f"autotune: waiting: {text}")

    def _silent(self) -> bool:
        return time.monotonic() - self._reported_s >= AGAIN_S

    def _tell(self, text: str) -> None:
        self._reported_s = time.monotonic()
        self.notice(text)
