"""The properties of a device, which are asked once before anything is measured on it."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from autotune.devices import sensors, topology
from autotune.devices.device import Device
from autotune.devices.sensors import Gpu, Meter, ThermalZone
from autotune.devices.topology import Cluster, Files, cpu_list, text
from autotune.errors import StableDeviceError

_TIMEOUT_S = 20.0
_IDENTITY = (
    "/proc/device-tree/model",
    "/proc/device-tree/compatible",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/etc/os-release",
    "/sys/devices/virtual/dmi/id/product_name",
    "/etc/autotune-emulated",
)
_SCALING = re.compile(r"/scaling_(min|max|cur)_freq$|/scaling_governor$")


@dataclass(frozen=True)
class DeviceInfo:
    """The properties of a device.

    Attributes:
        serial: Its identifier.
        kind: How it is connected: `adb`, `ssh`, `local` or `emulated`.
        model: The maker's name for it.
        soc: The chip.
        abi: `arm64-v8a`, `x86_64` and the like.
        system: Operating system and version.
        sdk: Android's API level; None elsewhere.
        clusters: Clusters of cores, from slow to fast.
        online: Numbers of the cores that are on.
        memory_bytes: Main memory; None if unknown.
        rooted: Whether it gives root.
        gpu: Graphics processor, if a known driver shows one.
        opencl: Path of its OpenCL library; empty if none was found.
        thermal_zones: Temperature sensors.
        meters: Power and energy meters.
        settings: Frequency limits and governors at the time of probing, by path.
        emulated: The emulator's name; empty for a real device. Times and joules of an emulated device are a
            model's.
    """

    serial: str
    kind: str
    model: str
    soc: str
    abi: str
    system: str
    sdk: int | None
    clusters: tuple[Cluster, ...]
    online: tuple[int, ...]
    memory_bytes: int | None
    rooted: bool
    gpu: Gpu | None
    opencl: str
    thermal_zones: tuple[ThermalZone, ...]
    meters: tuple[Meter, ...]
    settings: tuple[tuple[str, str], ...]
    emulated: str

    def to_json(self) -> dict[str, Any]:
        """Returns a plain object with lists."""
        return {**asdict(self), "settings": dict(self.settings)}


def probe(device: Device) -> DeviceInfo:
    """Asks a device for its properties.

    Raises:
        TransientDeviceError: It went away during the questions.
        StableDeviceError: It does not run Linux.
    """
    files = device.collect([*topology.PATTERNS, *sensors.PATTERNS, *_IDENTITY], timeout=_TIMEOUT_S)
    machine = device.run(["uname", "-m"], timeout=_TIMEOUT_S)
    if machine.exit_code != 0 or not files:
        raise StableDeviceError(
            f"{device.serial} does not look like Linux or Android: {machine.complaint}",
            hint="Linux boards and Android phones can be tuned",
        )
    properties = _properties(device)
    libraries = device.find(sensors.OPENCL_LIBRARIES, timeout=_TIMEOUT_S)
    cores = topology.clusters(files)
    sdk = properties.get("ro.build.version.sdk", "")
    return DeviceInfo(
        serial=device.serial,
        kind=device.kind,
        model=_model(files, properties),
        soc=_soc(files, properties),
        abi=properties.get("ro.product.cpu.abi") or machine.text,
        system=_system(files, properties),
        sdk=int(sdk) if sdk.isdecimal() else None,
        clusters=cores,
        online=cpu_list(text(files, "/sys/devices/system/cpu/online")),
        memory_bytes=_memory(files),
        rooted=device.rooted(),
        gpu=sensors.gpu(files),
        opencl=libraries[0] if libraries else "",
        thermal_zones=sensors.thermal_zones(files),
        meters=sensors.meters(files),
        settings=tuple((p, text(files, p)) for p in sorted(files) if _SCALING.search(p)),
        emulated=text(files, "/etc/autotune-emulated"),
    )


def _properties(device: Device) -> dict[str, str]:
    """Returns Android's properties; empty on other systems."""
    done = device.run(["getprop"], timeout=_TIMEOUT_S)
    return dict(re.findall(r"^\[([^\]]+)\]: \[(.*)\]$", done.text, re.MULTILINE))


def _model(files: Files, properties: dict[str, str]) -> str:
    named = (
        f"{properties.get('ro.product.manufacturer', '')} {properties.get('ro.product.model', '')}"
    )
    return (
        named.strip()
        or text(files, "/proc/device-tree/model")
        or text(files, "/sys/devices/virtual/dmi/id/product_name")
        or _cpuinfo(files, "model name")
        or "unknown"
    )


def _soc(files: Files, properties: dict[str, str]) -> str:
    return (
        properties.get("ro.soc.model")
        or properties.get("ro.board.platform")
        or text(files, "/proc/device-tree/compatible").rpartition(" ")[2].rpartition(",")[2]
        or _cpuinfo(files, "Hardware")
        or _cpuinfo(files, "model name")
        or "unknown"
    )


def _system(files: Files, properties: dict[str, str]) -> str:
    release = properties.get("ro.build.version.release")
    if release:
        return f"Android {release}"
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', text(files, "/etc/os-release"), re.MULTILINE)
    return named[1] if named else "Linux"


def _cpuinfo(files: Files, field: str) -> str:
    found = re.search(rf"^{field}\s*:\s*(.+)$", text(files, "/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip() if found else ""


def _memory(files: Files) -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", text(files, "/proc/meminfo"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
