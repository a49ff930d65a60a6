"""The interface through which the daemon uses the phone behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Mode = Literal["pipes", "socket", "terminal"]


@dataclass(frozen=True)
class Process:
    """A command that runs in the phone. The descriptors are this side's ends. Whoever holds them closes them.

    Attributes:
        stdin: Its input; the same number as `stdout` if one descriptor serves both.
        stdout: Its output.
        stderr: Its error output; None if this comes through `stdout`.
        status: Gives one byte when it has ended: its exit code. It gives nothing if the phone went away.
    """

    stdin: int
    stdout: int
    stderr: int | None
    status: int


class Inside(Protocol):
    """The inside of a phone. The caller closes every descriptor that is returned."""

    def shell(self, command: str, mode: Mode, *, root: bool) -> Process:
        """Starts a command; an empty one starts an interactive shell. Raises OSError."""

    def sync(self, *, root: bool) -> int:
        """Returns a socket to adb's file service. Raises OSError."""

    def connect(self, port: int) -> int:
        """Returns a socket that is connected to a port of the phone's loopback. Raises OSError."""

    def listen(self, port: int) -> int:
        """Returns a socket that listens on a port of the phone's loopback; 0 takes any. Raises OSError."""
