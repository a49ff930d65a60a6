"""Conditions of a measurement: the temperature at which it may begin, and what must hold until its end."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath

from autotune.devices import (
    Cluster,
    Device,
    DeviceInfo,
    ThermalZone,
    celsius,
    cpu_list,
    cpu_list_text,
)
from autotune.errors import StableDeviceError, TransientDeviceError
from autotune.measurement.observation import Observation
from autotune.measurement.setting import Setting
from autotune.waits import waiting

_ONLINE = "/sys/devices/system/cpu/online"
BODY = ("battery", "skin", "xo-therm", "quiet-therm")
"""Names of sensors of a device's body. They change slowly, while a core's sensor cools within a second."""
_CALL_S = 15.0
_COOLING_PAUSE_S = 5.0
_SHARE = 0.02
"""Share of samples that may differ, because a clock can change while it is being read."""
_CLOCK_TOLERANCE = 0.01
_STATUS = re.compile(r"^Thermal Status: (\d)$", re.MULTILINE)
_STATUSES = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
"""Android's severities of throttling: PowerManager.THERMAL_STATUS_NONE and so on."""
_FIRST_THERMAL_SDK = 29


def body_zone(info: DeviceInfo) -> ThermalZone | None:
    """Returns the sensor for cooling waits: a sensor of the device's body, else the first readable one."""
    seen = [zone for zone in info.thermal_zones if zone.celsius is not None]
    for word in BODY:
        for zone in seen:
            if word in zone.name.lower():
                return zone
    return seen[0] if seen else None


def watched(info: DeviceInfo) -> tuple[str, ...]:
    """Returns files that show whether the conditions held, and what the device did during the run."""
    found = [_ONLINE] if info.online else []
    for cluster in info.clusters:
        for policy in cluster.policies:
            found += [f"{policy}/scaling_cur_freq", f"{policy}/scaling_max_freq"]
    found += [f"{zone.path}/temp" for zone in info.thermal_zones if zone.celsius is not None]
    return tuple(found)


def read_celsius(device: Device, zone: ThermalZone) -> float:
    """Returns a sensor's reading in degrees Celsius.

    Raises:
        DeviceError: It cannot be read.
    """
    return celsius(float(device.read(PurePosixPath(f"{zone.path}/temp"), timeout=_CALL_S)))


def wait_until_cool(
    device: Device,
    zone: ThermalZone,
    most_c: float,
    *,
    limit_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Waits until a sensor reads at most `most_c` degrees Celsius, and returns its reading.

    Raises:
        StableDeviceError: The limit was reached first.
    """
    waited = 0.0
    first = now = read_celsius(device, zone)
    what = f"{device.serial} to cool: {zone.name} is at {first:.1f} C, and a run begins at {most_c:.1f} C"
    with waiting(what, lambda: (first - now) / (first - most_c) if first > most_c else None):
        while now > most_c:
            if waited >= limit_s:
                raise StableDeviceError(
                    f"{device.serial}: {zone.name} is at {now:.1f} C after {limit_s:.0f} s of rest, "
                    f"and measurements begin at {most_c:.1f} C",
                    hint="cool the device, or allow more with --start-temperature",
                )
            sleep(_COOLING_PAUSE_S)
            waited += _COOLING_PAUSE_S
            now = read_celsius(device, zone)
    return now


def thermal_status(device: Device, info: DeviceInfo) -> int | None:
    """Returns how severely Android throttles, from 0 (not) to 6 (shutdown); None if unknown."""
    if info.sdk is None or info.sdk < _FIRST_THERMAL_SDK:
        return None
    try:
        done = device.run(["dumpsys", "thermalservice"], timeout=_CALL_S)
    except TransientDeviceError:
        return None  # If the device is gone, the next call reports it.
    found = _STATUS.search(done.text)
    return int(found[1]) if found else None


def throttled(status: int | None) -> str:
    """Describes the effect of a thermal status on a run; empty if it has none, or is not known."""
    if not status:
        return ""
    return f"thermal status {status} ({_STATUSES[min(status, len(_STATUSES) - 1)]}): throttled"


def capped(device: Device, info: DeviceInfo, setting: Setting) -> str:
    """Reports a cluster of a setting whose clock is now capped lower than at probing; empty if there is none.

    This is needed because not every device has a service that reports throttling. A capped clock cannot be fixed at
    all: see `cpufreq.fixed_frequency`.
    """
    highest = dict(info.settings)
    names = {
        path: cluster.name
        for cluster in info.clusters
        if setting.may_use(cluster)
        for policy in cluster.policies
        if (path := f"{policy}/scaling_max_freq") in highest
    }
    now = device.collect(list(names), timeout=_CALL_S) if names else {}
    for path, name in names.items():
        text = now.get(path)
        if text is not None and int(text) < int(highest[path]):
            return f"{name} is capped at {int(text) / 1000:.0f} MHz: throttled"
    return ""


def wait_until_unthrottled(
    device: Device,
    info: DeviceInfo,
    setting: Setting,
    *,
    limit_s: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits until nothing is throttled, according to Android and to the clocks that a setting needs.

    Raises:
        StableDeviceError: Something is still throttled at the limit.
    """
    waited = 0.0
    with waiting(f"{device.serial} to stop throttling, {limit_s:.0f} s at most"):
        while reason := throttled(thermal_status(device, info)) or capped(device, info, setting):
            if waited >= limit_s:
                raise StableDeviceError(
                    f"{device.serial}: {reason}, after {limit_s:.0f} s of rest",
                    hint="cool the device, or take it off its charger",
                )
            sleep(_COOLING_PAUSE_S)
            waited += _COOLING_PAUSE_S


def broken(
    observation: Observation, window: tuple[float, float], setting: Setting, info: DeviceInfo
) -> list[str]:
    """Returns the conditions that did not hold within a window, in words; empty if all held.

    Args:
        observation: Contains samples of `watched`.
        window: Beginning and end.
        setting: The requested setting.
        info: The device.
    """
    found = []
    for index, (cluster, khz) in enumerate(zip(info.clusters, setting.khz, strict=True)):
        held: tuple[int, ...] = () if khz is None else (khz,)
        if setting.moving:
            held = setting.moving[index]
        for policy in cluster.policies if setting.may_use(cluster) else ():
            found += _clock(observation, window, cluster, policy, held)
            path = f"{policy}/scaling_{'cur' if held else 'max'}_freq"
            if dict(info.settings).get(path):
                found += _unread(observation, window, path)
    if setting.cpus is not None:
        allowed = set(setting.cpus)
        if not observation.cpus:
            found.append("it is unknown which cores the threads could use")
        for line in observation.cpus:
            if not set(cpu_list(line.text)) <= allowed:
                found.append(
                    f"threads could use cores {line.text}, not {cpu_list_text(setting.cpus)}"
                )
                break
        if info.online:
            found += _unread(observation, window, _ONLINE)
        for _, text in _within(observation, window, _ONLINE):
            if missing := allowed - set(cpu_list(text)):
                found.append(f"core {min(missing)} went off")
                break
    return found


def _unread(observation: Observation, window: tuple[float, float], path: str) -> list[str]:
    """Reports a file that was readable when the device was probed, but was never read in a window."""
    if _within(observation, window, path):
        return []
    return [f"{path} could not be read, so the conditions cannot be checked"]


def _clock(
    observation: Observation,
    window: tuple[float, float],
    cluster: Cluster,
    policy: str,
    held: tuple[int, ...],
) -> list[str]:
    """Reports wrong behaviour of a cluster's clock: it left its fixed value, or it was capped."""
    if held:
        seen = [int(t) for _, t in _within(observation, window, f"{policy}/scaling_cur_freq")]
        wrong = Counter(
            k for k in seen if all(abs(k - khz) > _CLOCK_TOLERANCE * khz for khz in held)
        )
        if wrong.total() > _SHARE * max(len(seen), 1):
            other = wrong.most_common(1)[0][0]
            wanted = " or ".join(f"{khz / 1000:.0f}" for khz in held)
            return [
                f"{cluster.name} ran at {other / 1000:.0f} MHz, not {wanted}, "
                f"in {wrong.total() / len(seen):.0%} of the samples"
            ]
        return []
    caps = [int(t) for _, t in _within(observation, window, f"{policy}/scaling_max_freq")]
    highest = cluster.max_khz
    capped = [k for k in caps if highest is not None and k < highest]
    if len(capped) > _SHARE * max(len(caps), 1):
        return [f"{cluster.name} was capped at {min(capped) / 1000:.0f} MHz: throttled"]
    return []


def _within(
    observation: Observation, window: tuple[float, float], path: str
) -> list[tuple[float, str]]:
    start, end = window
    return [(t, text.strip()) for t, text in observation.series(path) if start <= t <= end]


def mean_khz(
    observation: Observation, window: tuple[float, float], info: DeviceInfo
) -> dict[str, float]:
    """Returns the mean clock of each cluster within a window, in kHz, if it could be read."""
    found = {}
    for cluster in info.clusters:
        seen = [
            int(text)
            for policy in cluster.policies[:1]
            for _, text in _within(observation, window, f"{policy}/scaling_cur_freq")
        ]
        if seen:
            found[cluster.name] = sum(seen) / len(seen)
    return found


def hottest(
    observation: Observation, window: tuple[float, float], zone: ThermalZone
) -> float | None:
    """Returns the highest reading of a sensor within a window; None if there is none."""
    seen = [celsius(float(text)) for _, text in _within(observation, window, f"{zone.path}/temp")]
    return max(seen, default=None)
