"""What the daemon needs of the phone behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["pipes", "socket", "terminal"]


@dataclass(frozen=True)
class Process:
    """A command that runs in the phone; the descriptors are this side's ends, and the holder's to close.

    Attributes:
        stdin: What it reads; the same number as `stdout` where one descriptor serves both.
        stdout: What it prints.
        stderr: What it prints as errors; None where that comes by `stdout`.
        status: Gives one byte when it has ended: its exit code; nothing where the phone went away.
    """

    stdin: int
    stdout: int
    stderr: int | None
    status: int


class Inside(Protocol):
    """The inside of a phone. Every descriptor that is returned is the caller's to close."""

    def shell(self, command: str, mode: Mode, *, root: bool) -> Process:
        """Starts a command; an empty one is an interactive shell. Raises OSError."""

    def sync(self, *, root: bool) -> int:
        """A socket at whose other end adb's file service listens. Raises OSError."""

    def connect(self, port: int) -> int:
        """A socket that is connected to a port of the phone's loopback. Raises OSError."""

    def listen(self, port: int) -> int:
        """A socket that listens on a port of the phone's loopback; 0 takes any. Raises OSError."""
