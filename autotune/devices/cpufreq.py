"""Sets clocks and cores for the length of a block. Changes are journalled and read back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath

from autotune.devices.device import Device
from autotune.devices.journal import Change, Journal
from autotune.devices.topology import Cluster
from autotune.errors import StableDeviceError

LOGGER = logging.getLogger("autotune.devices")

_TIMEOUT_S = 15.0
_ONLINE = "/sys/devices/system/cpu/cpu{}/online"


@contextmanager
def fixed_frequency(device: Device, journal: Journal, cluster: Cluster, khz: int) -> Iterator[None]:
    """Holds a cluster at one frequency by setting both limits to it.

    Many kernels have no `userspace` governor, so the limits are set and not the speed. The upper limit is raised
    before the lower one, and lowered after it, because a kernel refuses limits that cross.

    Args:
        device: A rooted device.
        journal: Records the old limits first.
        cluster: The cluster.
        khz: One of its frequencies.

    Raises:
        StableDeviceError: The clock is capped already. A kernel shows its own cap and the user's limit in one file,
            so the value to restore would be unknown. Or the device refuses, or something on it (a thermal or power
            service) caps the clock, so that another limit is read back.
    """
    with moving_frequency(device, journal, cluster, khz):
        yield
        for policy in cluster.policies:
            now = int(_read(device, f"{policy}/scaling_max_freq"))
            if now < khz:
                LOGGER.warning(
                    "%s: %s was held at %d kHz, and is capped at %d",
                    device.serial,
                    policy,
                    khz,
                    now,
                )


@contextmanager
def moving_frequency(
    device: Device, journal: Journal, cluster: Cluster, khz: int
) -> Iterator[None]:
    """Holds a cluster like `fixed_frequency`, for a program that itself moves the limits.

    They are restored at the end.

    Raises:
        StableDeviceError: See `fixed_frequency`.
    """
    with ExitStack() as stack:
        for path, old in _limits(device, cluster, khz):
            stack.enter_context(written(device, journal, path, str(khz), old))
        yield


def leave_at_frequency(device: Device, journal: Journal, cluster: Cluster, khz: int) -> None:
    """Sets a cluster like `fixed_frequency`, without restoring it. The old limits stay in the journal.

    Raises:
        StableDeviceError: See `fixed_frequency`; changes made so far are in the journal.
    """
    for path, old in _limits(device, cluster, khz):
        journal.note(_change(path, str(khz), old))
        _write(device, path, str(khz))


def _limits(device: Device, cluster: Cluster, khz: int) -> Iterator[tuple[str, str]]:
    """Yields the files that hold a cluster at a frequency, with their values, in the order of writing."""
    for policy in cluster.policies:
        low, high = f"{policy}/scaling_min_freq", f"{policy}/scaling_max_freq"
        now, most = int(_read(device, high)), int(_read(device, f"{policy}/cpuinfo_max_freq"))
        if now < most:
            raise StableDeviceError(
                f"{device.serial}: {policy} reads a limit of {now} kHz, below its {most}",
                hint="let it cool; if you or a service set that limit, raise it to the highest first",
            )
        before = {high: str(now), low: _read(device, low)}
        for path in (high, low) if khz >= now else (low, high):
            yield path, before[path]


@contextmanager
def governor(device: Device, journal: Journal, cluster: Cluster, name: str) -> Iterator[None]:
    """Puts a cluster under another governor.

    Raises:
        StableDeviceError: The device refuses.
    """
    with ExitStack() as stack:
        for policy in cluster.policies:
            path = f"{policy}/scaling_governor"
            stack.enter_context(written(device, journal, path, name))
        yield


@contextmanager
def written(
    device: Device, journal: Journal, path: str, value: str, old: str | None = None
) -> Iterator[None]:
    """Applies a setting for the length of a block: records, writes and reads it back, and restores it afterwards.

    Args:
        device: The device.
        journal: Records the change first.
        path: A file of sysfs.
        value: The value to write.
        old: The value to restore; None for the file's present value.

    Raises:
        StableDeviceError: The device refuses the value, or it does not stay.
    """
    old = _read(device, path) if old is None else old
    with journal.changed(_change(path, value, old)):
        _write(device, path, value)
        yield


def _change(path: str, value: str, old: str) -> Change:
    return Change(f"{path}: {old} -> {value}", "write", path=path, text=old)


def _write(device: Device, path: str, value: str) -> None:
    device.write(PurePosixPath(path), value.encode(), timeout=_TIMEOUT_S)
    held = _read(device, path)
    if held != value:
        raise StableDeviceError(
            f"{device.serial}: {path} reads {held} after {value} was written",
            hint="a thermal or power service of the device holds it; let it cool, or stop the service",
        )


def _read(device: Device, path: str) -> str:
    return device.read(PurePosixPath(path), timeout=_TIMEOUT_S).decode(errors="replace").strip()
