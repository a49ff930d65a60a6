"""Sets a configuration on a device and leaves it there, journalled, until it is restored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from autotune.devices import Cluster, Device, DeviceInfo, Journal, cpufreq, held
from autotune.errors import StableDeviceError
from autotune.studies.space.configuration import CpuConfiguration

_CALL_S = 15.0


def apply(device: Device, info: DeviceInfo, configuration: CpuConfiguration) -> list[str]:
    """Sets the clocks of a configuration. The restore journal keeps the previous values.

    Cores belong to a process, not to a device. Whoever starts a process gives it `configuration.cpus`.

    Args:
        device: The device.
        info: Its properties.
        configuration: It has a clock for every cluster that trains, or for none.

    Returns:
        The values that were set and read back, in words.

    Raises:
        UsageError: The device has other clusters, or lacks these cores and clocks.
        StableDeviceError: The device gives no root, or refuses. It is left unchanged.
        DeviceError: Another run holds it.
    """
    configuration.cpus(info.clusters)
    configuration.require_on(info.clusters, f"the configuration for {info.serial}")
    wanted = [
        (cluster, setting.khz)
        for cluster, setting in zip(info.clusters, configuration.clusters, strict=True)
        if setting.khz is not None
    ]
    if wanted and not info.rooted:
        raise StableDeviceError(
            f"{info.serial} gives no root, and clocks cannot be set without it",
            hint="bind the program to the cores; the system chooses the clocks",
        )
    with held(device.serial, device.kind):
        return _leave(device, wanted)


def _leave(device: Device, wanted: Sequence[tuple[Cluster, int]]) -> list[str]:
    journal = Journal(device)
    said = []
    try:
        for cluster, khz in wanted:
            cpufreq.leave_at_frequency(device, journal, cluster, khz)
            for policy in cluster.policies:
                path = PurePosixPath(f"{policy}/scaling_cur_freq")
                now = device.read(path, timeout=_CALL_S).decode().strip()
                said.append(f"{cluster.name}: {policy} at {now} kHz")
    except BaseException:
        journal.undo()
        raise
    finally:
        journal.close()
    return said
