"""Lists what can be tuned on a device and what can only be observed, with reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.devices.info import DeviceInfo
from autotune.devices.topology import Cluster, cpu_list_text

Status = Literal["tuned", "observed", "absent"]
_FIXED_PERFORMANCE_SDK = 30
_SERVER_ABIS = ("arm64-v8a", "aarch64", "x86_64", "AMD64")


@dataclass(frozen=True)
class Capability:
    """One capability of a device.

    Attributes:
        name: Its name.
        status: `tuned` if it can be chosen, `observed` if it can only be read, `absent` otherwise.
        value: Its present value, or the possible choices.
        reason: Why it is not tuned, or what tuning requires; empty if there is nothing to say.
    """

    name: str
    status: Status
    value: str
    reason: str = ""


def capabilities(info: DeviceInfo) -> list[Capability]:
    """Returns the capability matrix of a device, in display order."""
    return [
        _cpu_kernels(info),
        _gpu_kernels(info),
        _cores(info),
        *(_frequency(info, cluster) for cluster in info.clusters),
        _online(info),
        *_fixed_performance(info),
        _temperature(info),
        _energy(info),
    ]


def _cpu_kernels(info: DeviceInfo) -> Capability:
    if info.abi in _SERVER_ABIS:
        return Capability("CPU kernels", "tuned", info.abi)
    return Capability(
        "CPU kernels", "absent", info.abi, "the device server runs on 64-bit ARM and x86-64 only"
    )


def _gpu_kernels(info: DeviceInfo) -> Capability:
    name = f"{info.gpu.name} ({info.gpu.driver})" if info.gpu else "no known driver"
    if info.opencl:
        return Capability("GPU kernels (OpenCL)", "tuned", f"{name}, {info.opencl}")
    return Capability(
        "GPU kernels (OpenCL)", "absent", name, "no OpenCL library at the known paths"
    )


def _cores(info: DeviceInfo) -> Capability:
    text = "; ".join(f"{c.name} {cpu_list_text(c.cpus)}" for c in info.clusters)
    return Capability("cores and threads", "tuned", text)


def _frequency(info: DeviceInfo, cluster: Cluster) -> Capability:
    name = f"frequency of {cluster.name}"
    if not cluster.policies:
        return Capability(name, "absent", "-", "the kernel has no cpufreq here")
    settings = dict(info.settings)
    now = settings.get(f"{cluster.policies[0]}/scaling_cur_freq", "")
    governor = settings.get(f"{cluster.policies[0]}/scaling_governor", "")
    value = f"{_mhz(cluster.min_khz)} to {_mhz(cluster.max_khz)} MHz"
    if cluster.frequencies_khz:
        value += f" in {len(cluster.frequencies_khz)} steps"
    value += f", now {_mhz(int(now) if now.isdecimal() else None)} ({governor or 'no governor'})"
    if not info.rooted:
        return Capability(name, "observed", value, "setting it takes root")
    if cluster.min_khz == cluster.max_khz:
        return Capability(name, "observed", value, "it has one frequency")
    return Capability(name, "tuned", value)


def _online(info: DeviceInfo) -> Capability:
    value = cpu_list_text(info.online) or "-"
    if info.rooted:
        return Capability("cores switched off", "tuned", f"on: {value}")
    return Capability("cores switched off", "observed", f"on: {value}", "switching takes root")


def _fixed_performance(info: DeviceInfo) -> list[Capability]:
    if info.sdk is None:
        return []
    name, value = "fixed-performance mode", f"API level {info.sdk}"
    if info.sdk < _FIXED_PERFORMANCE_SDK:
        return [Capability(name, "absent", value, "it came with Android 11 (API level 30)")]
    return [Capability(name, "tuned", value, "where the maker supports it; no root needed")]


def _temperature(info: DeviceInfo) -> Capability:
    seen = [zone for zone in info.thermal_zones if zone.celsius is not None]
    if not seen:
        return Capability("temperature", "absent", "-", "no thermal zone can be read")
    hottest = max(seen, key=lambda zone: zone.celsius or 0.0)
    value = f"{len(seen)} zones, {hottest.name} {hottest.celsius:.0f} C"
    return Capability("temperature", "observed", value)


def _energy(info: DeviceInfo) -> Capability:
    if not info.meters:
        return Capability(
            "energy", "absent", "-", "no battery, ODPM, iio, hwmon or RAPL meter was found"
        )
    readable = [meter for meter in info.meters if meter.readable]
    names = ", ".join(f"{meter.kind}:{meter.name}" for meter in readable or info.meters)
    if not readable:
        return Capability("energy", "absent", names, "the meters cannot be read without root")
    return Capability("energy", "observed", names)


def _mhz(khz: int | None) -> str:
    return "?" if khz is None else f"{khz / 1000:.0f}"
