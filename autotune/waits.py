"""Reports long waits: after two seconds, then every ten, with progress and the remaining time.

Code that waits names the wait here, and the command line decides where it is reported. Every room may import this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

FIRST_S, AGAIN_S = 2.0, 10.0
"""Seconds after which a wait is first reported, and reported again."""
Progress = Callable[[], float | None]
"""Returns the finished share of a wait, from 0 to 1; None if unknown. It is called in a thread."""
_listeners: list[Callable[[str], None]] = []


class _Wait:
    """A wait in progress. While another one within it is in progress, that one is reported alone."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.within = 0


_innermost: ContextVar[_Wait | None] = ContextVar("autotune.wait", default=None)


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Sends reports of waits within the block to `tell`, one line each. Outside such a block, waits are silent."""
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
    own, outer = _Wait(), _innermost.get()
    began = time.monotonic()

    def watch() -> None:
        pause = FIRST_S
        while not own.over.wait(pause):
            pause = AGAIN_S
            if own.within:
                continue
            text = _text(what, time.monotonic() - began, progress())
            for tell in _listeners[-1:]:
                tell(text)

    watcher = threading.Thread(target=watch, name="waits", daemon=True)
    if _listeners:
        watcher.start()
    token = _innermost.set(own)
    if outer is not None:
        outer.within += 1
    try:
        yield
    finally:
        if outer is not None:
            outer.within -= 1
        _innermost.reset(token)
        own.over.set()
        if watcher.ident is not None:
            watcher.join()


def lasting(seconds: float) -> Progress:
    """Returns the progress of a wait that takes `seconds` from now."""
    began = time.monotonic()
    return lambda: (time.monotonic() - began) / seconds if seconds > 0 else None


def _text(what: str, waited_s: float, share: float | None) -> str:
    told = f"{what}: {waited_s:.0f} s so far"
    if share is None or not 0 < share < 1:
        return told
    return f"{told}, {share:.0%} done, about {waited_s * (1 - share) / share:.0f} s left"


__all__ = ["AGAIN_S", "FIRST_S", "lasting", "telling", "waiting"]
