"""This host as a device."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from autotune.devices.device import Completed
from autotune.devices.processes import run_limited
from autotune.devices.shell import ShellDevice
from autotune.errors import StableDeviceError


class LocalDevice(ShellDevice):
    """This host: its own shell and files. Ports need no forwarding."""

    kind = "local"
    root_prefixes = (("sudo", "-n", "sh", "-c"),)

    def __init__(self) -> None:
        super().__init__("local")

    def _script(self, script: str, argv: Sequence[str], *, timeout: float) -> Completed:
        return run_limited(["sh", "-c", script], argv, who=self.serial, timeout=timeout)

    def push(self, source: Path, target: PurePosixPath, *, timeout: float) -> None:
        """See `Device.push`."""
        _copy(source, Path(target))

    def pull(self, source: PurePosixPath, target: Path, *, timeout: float) -> None:
        """See `Device.pull`."""
        _copy(Path(source), target)

    def forward(self, device_port: int, *, timeout: float, host_port: int = 0) -> int:
        """See `Device.forward`."""
        return device_port

    def reverse(self, host_port: int, *, timeout: float) -> int:
        """See `Device.reverse`."""
        return host_port

    def reconnect(self, *, timeout: float) -> None:
        """See `Device.reconnect`."""

    def reboot(self, *, timeout: float) -> None:
        """See `Device.reboot`."""
        raise StableDeviceError("local: this host is not restarted from here")

    def unforward(self, host_port: int, *, timeout: float) -> None:
        """See `Device.unforward`."""

    def unreverse(self, device_port: int, *, timeout: float) -> None:
        """See `Device.unreverse`."""


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    except OSError as error:
        raise StableDeviceError(f"local: cannot copy {source} to {target}: {error}") from error
