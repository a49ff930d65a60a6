"""Waits that say what they wait for: after two seconds, then every ten, with progress and the time that is left.

Whoever waits names it here; the command line decides where it is told. Every room may import this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_S, AGAIN_S = 2.0, 10.0
"""Seconds after which a wait is told of, and told of again."""
Progress = Callable[[], float | None]
"""Asked for the share of a wait that is over, from 0 to 1; None where it is not known. It is asked in a thread."""
_listeners: list[Callable[[str], None]] = []


@contextmanager
def telling(tell: Callable[[str], None]) -> Iterator[None]:
    """Has waits within the block told to `tell`, a line each; without any, nobody is told."""
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


@contextmanager
def waiting(what: str, progress: Progress = lambda: None) -> Iterator[None]:
    """Says what is waited for while the block takes longer than two seconds.

    Args:
        what: What is waited for, such as `compiling the OpenCL runtime`.
        progress: How far it is.
    """
    over = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        pause = FIRST_S
        while not over.wait(pause):
            text = _text(what, time.monotonic() - began, progress())
            for tell in _listeners[-1:]:
                tell(text)
            pause = AGAIN_S

    watcher = threading.Thread(target=watch, name="waits", daemon=True)
    if _listeners:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        if watcher.ident is not None:
            watcher.join()


def lasting(seconds: float) -> Progress:
    """The progress of a wait that takes so many seconds from now on."""
    began = time.monotonic()
    return lambda: (time.monotonic() - began) / seconds if seconds > 0 else None


def _text(what: str, waited_s: float, share: float | None) -> str:
    told = f"{what}: {waited_s:.0f} s so far"
    if share is None or not 0 < share < 1:
        return told
    return f"{told}, {share:.0%} done, about {waited_s * (1 - share) / share:.0f} s left"


__all__ = ["AGAIN_S", "FIRST_S", "lasting", "telling", "waiting"]
