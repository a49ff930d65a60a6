"""Reports long waits: after two seconds, then every ten, with progress and the remaining time.

Code that waits names the wait here, and the command line decides where it is reported. Every room may import this.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

FIRST_S, AGAIN_S = 2.0, 10.0
"""Seconds after which a wait is first reported, and reported again."""
Progress = Callable[[], float | None]
"""Returns the finished share of a wait, from 0 to 1; None if unknown. It is called in a thread."""
_listeners: list[Callable[[str], None]] = []


class _Wait:
    """A wait in progress, or with no name a time in which nothing is waited for."""

    def __init__(self, what: str, progress: Progress) -> None:
        self.what, self.progress = what, progress
        self.over = threading.Event()
        self.listener = _listeners[-1] if _listeners else None
        self._began = time.monotonic()
        self._reported_s = -math.inf
        self._within: list[_Wait] = []

    @contextmanager
    def within(self, inner: _Wait) -> Iterator[None]:
        """While another wait within this one is in progress, that one is reported alone."""
        self._within.append(inner)
        try:
            yield
        finally:
            self._within.remove(inner)

    def innermost(self) -> _Wait:
        return self._within[-1].innermost() if self._within else self

    def tell(self) -> None:
        """Reports it, unless that was done just now."""
        now = time.monotonic()
        with _one_at_a_time:
            if not self.what or now - self._reported_s < AGAIN_S / 2:
                return
            self._reported_s = now
        # Who has listened since then shows something else, such as progress.
        if self.listener is not None and self.listener in _listeners[-1:]:
            self.listener(_text(self.what, now - self._began, self.progress()))


_innermost: ContextVar[_Wait | None] = ContextVar("autotune.wait", default=None)
_one_at_a_time = threading.Lock()


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Sends reports of waits that begin within the block to `tell`, one line each. Others are silent."""
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


@contextmanager
def waiting(what: str, progress: Progress = lambda: None) -> Iterator[None]:
    """Reports a wait if the block takes longer than two seconds.

    Args:
        what: The thing waited for, such as `compiling the OpenCL runtime`.
        progress: Its progress.
    """
    own = _Wait(what, progress)

    def watch() -> None:
        pause = FIRST_S
        while not own.over.wait(pause):
            pause = AGAIN_S
            own.innermost().tell()

    watcher = threading.Thread(target=watch, name="waits", daemon=True)
    if own.listener is not None:
        watcher.start()
    try:
        with _as_innermost(own):
            yield
    finally:
        own.over.set()
        if watcher.ident is not None:
            watcher.join()


@contextmanager
def nothing_awaited() -> Iterator[None]:
    """Reports no wait that the block is within: it serves until it is told to end."""
    with _as_innermost(_Wait("", lambda: None)):
        yield


@contextmanager
def _as_innermost(own: _Wait) -> Iterator[None]:
    outer = _innermost.get()
    token = _innermost.set(own)
    try:
        with outer.within(own) if outer is not None else nullcontext():
            yield
    finally:
        _innermost.reset(token)


def lasting(seconds: float) -> Progress:
    """Returns the progress of a wait that takes `seconds` from now."""
    began = time.monotonic()
    return lambda: (time.monotonic() - began) / seconds if seconds > 0 else None


def _text(what: str, waited_s: float, share: float | None) -> str:
    text = f"{what}: {waited_s:.0f} s so far"
    if share is None or not 0 < share < 1:
        return text
    return f"{text}, {share:.0%} done, about {waited_s * (1 - share) / share:.0f} s left"


__all__ = ["AGAIN_S", "FIRST_S", "lasting", "nothing_awaited", "telling", "waiting"]
