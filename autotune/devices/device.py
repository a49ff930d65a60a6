"""What every device can do, whatever connects it: commands, files, and ports in both directions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol


@dataclass(frozen=True)
class Completed:
    """A command that ended on a device.

    Attributes:
        argv: The command.
        exit_code: Its exit code; 128 + number where a signal ended it.
        stdout: What it printed.
        stderr: What it printed as errors.
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
        """Its last error line, or its exit code where it printed none; for messages."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else f"exit code {self.exit_code}"


class Device(Protocol):
    """A device that answers.

    Every call ends within its `timeout` in seconds, whatever the device or the link does, and raises

    - `TransientDeviceError` where the link failed, the device went away or the time was over: the same call may
      succeed later;
    - `StableDeviceError` where the device refused, and will again.

    No call is repeated silently: a caller knows best whether a command may run twice.
    """

    @property
    def serial(self) -> str:
        """What names the device: adb's serial, `user@host`, `local`, or an emulated phone's name."""

    @property
    def kind(self) -> str:
        """How it is connected: `adb`, `ssh`, `local` or `emulated`."""

    def rooted(self) -> bool:
        """Whether the device gives root; asked once."""

    def run(self, argv: Sequence[str], *, timeout: float, root: bool = False) -> Completed:
        """Runs a command and waits for it; a failing command is a result, not an error.

        Args:
            argv: The program and its arguments, taken literally.
            timeout: Limit in seconds.
            root: Run it as root.

        Raises:
            StableDeviceError: `root` was asked of a device that does not give it.
        """

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """Copies a file to the device, with its mode; folders on the way are made."""

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """Copies a file from the device."""

    def read(self, path: PurePosixPath, *, timeout: float) -> bytes:
        """Reads a small file, such as one of sysfs, as root where the device gives it."""

    def write(self, path: PurePosixPath, data: bytes, *, timeout: float) -> None:
        """Writes a small text into an existing file in one `write`, as root where the device gives it.

        Raises:
            StableDeviceError: The file is absent, or refuses the value (EINVAL) or the writer (EACCES).
        """

    def collect(self, patterns: Iterable[str], *, timeout: float) -> dict[str, bytes | None]:
        """Reads many small files in one exchange.

        Args:
            patterns: Paths with the shell's `*`, `?` and `[...]`.
            timeout: Limit in seconds.

        Returns:
            Contents by path, of the files that are there; None where one is there but cannot be read.
        """

    def find(self, patterns: Iterable[str], *, timeout: float) -> list[str]:
        """The paths that are there, without reading them."""

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """Makes a port of the device reachable on this host's loopback.

        Args:
            device_port: The device's.
            timeout: Limit in seconds.
            host_port: This host's, as a wish; 0 takes any. Only adb and ssh can choose.

        Returns:
            This host's port.
        """

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """Makes a port of this host's loopback reachable on the device's; returns the device's port."""

    def reconnect(self, *, timeout: float) -> None:
        """Makes the connection anew; what was forwarded is lost.

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
        """Takes back what `forward` returned; nothing happens where it is gone already."""

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """Takes back what `reverse` returned; nothing happens where it is gone already."""


def quoted(argv: Sequence[str]) -> str:
    """The command as a POSIX shell reads it back literally."""
    return shlex.join(argv)
