"""Setting clocks and cores for the length of a block, journalled, and read back."""

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
    """Holds a cluster at one frequency by closing its limits around it.

    Many kernels have no `userspace` governor, so the limits are set and not the speed. The upper limit is raised
    before the lower one, and lowered after it, since a kernel refuses limits that cross.

    Args:
        device: A rooted device.
        journal: Where the old limits are noted first.
        cluster: The cluster.
        khz: One of its frequencies.

    Raises:
        StableDeviceError: The clock is capped already: a kernel shows its own cap and the user's limit in one file,
            so nobody could tell what to put back. Or the device refuses, or something on it (a thermal or power
            service) caps the clock, so that the limit reads back as another one.
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
    """As `fixed_frequency`, for a program that moves the limits itself meanwhile; they are put back in the end.

    Raises:
        StableDeviceError: See `fixed_frequency`.
    """
    with ExitStack() as stack:
        for path, old in _limits(device, cluster, khz):
            stack.enter_context(written(device, journal, path, str(khz), old))
        yield


def leave_at_frequency(device: Device, journal: Journal, cluster: Cluster, khz: int) -> None:
    """As `fixed_frequency`, without an end: what was before stays in the journal.

    Raises:
        StableDeviceError: See `fixed_frequency`; what was changed by then is in the journal.
    """
    for path, old in _limits(device, cluster, khz):
        journal.note(_change(path, str(khz), old))
        _write(device, path, str(khz))


def _limits(device: Device, cluster: Cluster, khz: int) -> Iterator[tuple[str, str]]:
    """Files that hold a cluster at a frequency, in the order in which they are written, and what they hold."""
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
    """A setting for the length of a block: noted, written, read back; put back afterwards.

    Args:
        device: The device.
        journal: Where the change is noted first.
        path: A file of sysfs.
        value: What to write.
        old: What to put back; None for what the file holds now.

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
