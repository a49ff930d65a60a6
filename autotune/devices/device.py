"""The abilities of every device, however it is connected: commands, files, and ports in both directions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

MOST_ANSWER_BYTES = 64 << 20
"""Bytes that a device may send as the answer to one call: more than any record of a run takes."""


@dataclass(frozen=True)
class Completed:
    """A command that ended on a device.

    Attributes:
        argv: The command.
        exit_code: Its exit code; 128 + number if a signal ended it.
        stdout: Its standard output.
        stderr: Its error output.
    """

    argv: tuple[str, ...]
    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output without the white space around it."""
        return self.stdout.decode(errors="replace").strip()

    @property
    def complaint(self) -> str:
        """Its last error line, or its exit code if it printed none, for messages."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"exit code {self.exit_code}"


class Device(Protocol):
    """A device that answers.

    Every call ends within its `timeout` in seconds, whatever the device or the link does. It raises

    - `TransientDeviceError` if the link failed, the device went away or the time was over: the same call may
    succeed
      later;
    - `StableDeviceError` if the device refused, and would refuse again, or if its answer is longer than
      `MOST_ANSWER_BYTES`.

    No call is repeated silently, because only the caller knows whether a command may run twice.
    """

    @property
    def serial(self) -> str:
        """The device's identifier: adb's serial, `user@host`, `local`, or an emulated phone's name."""

    @property
    def kind(self) -> str:
        """How it is connected: `adb`, `ssh`, `local` or `emulated`."""

    def rooted(self) -> bool:
        """Returns whether the device gives root. It is asked only once."""

    def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
        """Runs a command and waits for it; a failing command is a result, not an error.

        Args:
            argv: The program and its arguments, taken literally.
            timeout: Limit in seconds.
            root: Run it as root.

        Raises:
            StableDeviceError: Root is not available, but `root` was set.
        """

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """Copies a file to the device, with its mode. Missing folders are made."""

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """Copies a file from the device."""

    def read(self, path: PurePosixPath, *, timeout: float) -> bytes:
        """Reads a small file, such as one of sysfs, as root if the device gives it."""

    def write(self, path: PurePosixPath, data: bytes, *, timeout: float) -> None:
        """Writes a small text into an existing file in one `write`, as root if the device gives it.

        Raises:
            StableDeviceError: The file is absent, or refuses the value (EINVAL) or the writer (EACCES).
        """

    def collect(self, patterns: Iterable[str], *, timeout: float) -> dict[str, bytes | None]:
        """Reads many small files in one exchange.

        Args:
            patterns: Paths with the shell's `*`, `?` and `[...]`.
            timeout: Limit in seconds.

        Returns:
            Contents of existing files, by path; None for a file that cannot be read.
        """

    def find(self, patterns: Iterable[str], *, timeout: float) -> list[str]:
        """Returns the paths that exist, without reading them."""

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """Makes a port of the device reachable on this host's loopback.

        Args:
            device_port: The device's port.
            timeout: Limit in seconds.
            host_port: Preferred port of this host; 0 takes any. Only adb and ssh can choose.

        Returns:
            This host's port.
        """

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """Makes a port of this host's loopback reachable on the device's, and returns the device's port."""

    def reconnect(self, *, timeout: float) -> None:
        """Reconnects to the device. Forwarded ports are lost.

        Raises:
            TransientDeviceError: The device does not come back in time.
        """

    def reboot(self, *, timeout: float) -> None:
        """Restarts the device and waits until it answers again.

        Raises:
            TransientDeviceError: It does not come back in time.
            StableDeviceError: It cannot be restarted from here.
        """

    def unforward(self, host_port: int, *, timeout: float) -> None:
        """Removes a port that `forward` returned. Nothing happens if it is already gone."""

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """Removes a port that `reverse` returned. Nothing happens if it is already gone."""


def quoted(argv: Sequence[str]) -> str:
    """Quotes a command so that a POSIX shell reads it back literally."""
    return shlex.join(argv)
