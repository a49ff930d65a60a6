"""Signals that end a command: Ctrl-C, SIGTERM, and SIGHUP, which a closed terminal or a lost connection sends."""

from __future__ import annotations

import errno
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from autotune import scratch
from autotune.errors import INTERRUPTED

_STANDARD = (0, 1, 2)
_TWICE_S = 1.0
"""Within this time two SIGTERM are one."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end a block as Ctrl-C does, so that its changes are undone.

    A handler that is already set stays, and so does a signal that is ignored, as under `nohup`. Senders may send
    both signals, or one twice. Only the first counts, so that undoing is not interrupted.
    """

    def handler(number: int, frame: FrameType | None) -> None:
        for one in taken:
            signal.signal(one, signal.SIG_IGN)
        if number == signal.SIGHUP:
            leave_lost_terminal()
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    ending = (signal.SIGTERM, signal.SIGHUP)
    taken = [one for one in ending if main and signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, handler)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)


def stopping_signals() -> list[signal.Signals]:
    """Returns the signals that ask a command to stop, without SIGHUP if it is ignored, as under `nohup`."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


def leave_lost_terminal() -> None:
    """Discards output to a terminal that is gone, because each write to it would be an error."""
    for number in _STANDARD:
        try:
            os.ttyname(number)
        except OSError as error:
            if error.errno == errno.EIO:
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, number)
                os.close(nowhere)


@contextmanager
def stop_on_interrupt(said: str, *, after: str = "this trial") -> Iterator[Any]:
    """Yields a function that returns whether to stop. A second signal ends the process.

    Ctrl-C, SIGTERM and SIGHUP ask to stop. SIGHUP counts once, because a closing shell may send it twice. So does
    SIGTERM within a second, because `timeout` sends it to the process and then to its group. An exception would do
    the same if only Python runs, but raised inside TVM's C++ it is a crash.

    Args:
        said: The line that is printed if the process ends at once, such as how to resume.
        after: The work that is finished before the command stops.
    """
    pressed = False
    asked = -math.inf

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal pressed, asked
        if number == signal.SIGTERM and time.monotonic() - asked < _TWICE_S:
            return
        if number == signal.SIGHUP:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            leave_lost_terminal()
        elif pressed:
            abandon()
            show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
            os.write(2, f"{show_cursor}{said}\n".encode())
            os._exit(INTERRUPTED)
        pressed, asked = True, time.monotonic()
        print(f"autotune: stopping after {after}; Ctrl-C again to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, handler) for number in stopping_signals()}
    try:
        yield lambda: pressed
    finally:
        for number, handled in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, handled)


def abandon() -> None:
    """Kills the processes that this process has started, and removes its temporary folders."""
    import psutil  # Commands that list things do not need it.

    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            child.kill()
            child.wait(timeout=1)
    scratch.abandon()
