"""A device's sensors of heat and energy, and its graphics processor, as found on the device."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotune.devices.topology import Files, number, text

_SUPPLY = "/sys/class/power_supply"
_IIO = "/sys/bus/iio/devices"
_HWMON = "/sys/class/hwmon"
_POWERCAP = "/sys/class/powercap"
_KGSL = "/sys/class/kgsl/kgsl-3d0"

PATTERNS = (
    "/sys/class/thermal/thermal_zone*/type",
    "/sys/class/thermal/thermal_zone*/temp",
    f"{_SUPPLY}/*/type",
    f"{_SUPPLY}/*/status",
    f"{_SUPPLY}/*/current_now",
    f"{_SUPPLY}/*/voltage_now",
    f"{_SUPPLY}/*/power_now",
    f"{_SUPPLY}/*/charge_counter",
    f"{_IIO}/iio:device*/name",
    f"{_IIO}/iio:device*/energy_value",
    f"{_IIO}/iio:device*/in_power*_input",
    f"{_IIO}/iio:device*/rail_name_*",
    f"{_HWMON}/hwmon*/name",
    f"{_HWMON}/hwmon*/power*_input",
    f"{_HWMON}/hwmon*/curr*_input",
    f"{_POWERCAP}/*/name",
    f"{_POWERCAP}/*/energy_uj",
    f"{_KGSL}/gpu_model",
    f"{_KGSL}/gpuclk",
    f"{_KGSL}/max_gpuclk",
    f"{_KGSL}/devfreq/governor",
    "/sys/class/devfreq/*mali*/cur_freq",
    "/sys/class/devfreq/*mali*/max_freq",
    "/sys/class/misc/mali0/device/gpuinfo",
    "/sys/module/kgsl/version",
)
OPENCL_LIBRARIES = (
    "/vendor/lib64/libOpenCL.so",
    "/vendor/lib64/libOpenCL-pixel.so",
    "/vendor/lib64/libGLES_mali.so",
    "/vendor/lib64/egl/libGLES_mali.so",
    "/system/vendor/lib64/libOpenCL.so",
    "/system/lib64/libOpenCL.so",
    "/usr/lib/libOpenCL.so.1",
    "/usr/lib/*/libOpenCL.so.1",
    "/usr/lib64/libOpenCL.so.1",
)
"""Paths of the OpenCL library on phones and boards. The device server searches the same paths."""


@dataclass(frozen=True)
class ThermalZone:
    """A temperature sensor; `celsius` is None if it cannot be read."""

    name: str
    path: str
    celsius: float | None


@dataclass(frozen=True)
class Meter:
    """A meter of power or energy.

    Attributes:
        kind: `battery`, `usb`, `odpm`, `iio`, `hwmon` or `rapl`.
        name: The system's name for it.
        path: Its folder.
        readable: Whether its value could be read.
    """

    kind: str
    name: str
    path: str
    readable: bool


@dataclass(frozen=True)
class Gpu:
    """A graphics processor, as the kernel driver names it."""

    name: str
    driver: str
    clock_hz: int | None
    max_clock_hz: int | None


def thermal_zones(files: Files) -> tuple[ThermalZone, ...]:
    """Returns temperature sensors, ordered by number."""
    found = []
    for path in _folders(files, r"/sys/class/thermal/thermal_zone\d+"):
        raw = number(files, f"{path}/temp")
        now = None if raw is None else celsius(raw)
        found.append(ThermalZone(text(files, f"{path}/type"), path, now))
    return tuple(found)


def celsius(raw: float) -> float:
    """Converts a thermal zone's reading, in thousandths of a degree, or in whole degrees on a few old kernels."""
    return raw / 1000 if abs(raw) >= 1000 else float(raw)


def meters(files: Files) -> tuple[Meter, ...]:
    """Returns power and energy meters."""
    found = []
    for path in _folders(files, rf"{_SUPPLY}/[^/]+"):
        kind = text(files, f"{path}/type").lower()
        kind = "usb" if kind.startswith("usb") else kind  # USB_PD, USB_DCP and the like
        if kind in ("battery", "usb") and f"{path}/current_now" in files:
            found.append(_meter(files, kind, path, "current_now"))
        elif kind == "battery" and f"{path}/power_now" in files:
            found.append(_meter(files, kind, path, "power_now"))
    for path in _folders(files, rf"{_IIO}/iio:device\d+"):
        if f"{path}/energy_value" in files:
            found.append(_meter(files, "odpm", path, "energy_value"))
        elif power := _first(files, rf"{re.escape(path)}/in_power\d+_input"):
            found.append(_meter(files, "iio", path, power))
    for path in _folders(files, rf"{_HWMON}/hwmon\d+"):
        value = _first(files, rf"{re.escape(path)}/power\d+_input")
        if value or (
            "ina" in text(files, f"{path}/name")
            and (value := _first(files, rf"{re.escape(path)}/curr\d+_input"))
        ):
            found.append(_meter(files, "hwmon", path, value))
    found += [
        _meter(files, "rapl", path, "energy_uj")
        for path in _folders(files, rf"{_POWERCAP}/[^/]+")
        if f"{path}/energy_uj" in files
    ]
    return tuple(found)


def _meter(files: Files, kind: str, path: str, value: str) -> Meter:
    name = text(files, f"{path}/name") or path.rpartition("/")[2]
    return Meter(kind, name, path, number(files, f"{path}/{value}") is not None)


def gpu(files: Files) -> Gpu | None:
    """Returns the graphics processor; None if no known driver shows one."""
    if f"{_KGSL}/gpu_model" in files or f"{_KGSL}/gpuclk" in files:
        return Gpu(
            text(files, f"{_KGSL}/gpu_model") or "Adreno",
            f"kgsl {text(files, '/sys/module/kgsl/version')}".strip(),
            number(files, f"{_KGSL}/gpuclk"),
            number(files, f"{_KGSL}/max_gpuclk"),
        )
    info = text(files, "/sys/class/misc/mali0/device/gpuinfo")
    folders = _folders(files, r"/sys/class/devfreq/[^/]*mali[^/]*")
    if not info and not folders:
        return None
    clock = folders[0] if folders else ""
    name = info.partition(" cores")[0].rpartition(" ")[0] if " cores" in info else info
    return Gpu(
        name or "Mali", "mali", number(files, f"{clock}/cur_freq"), number(files, f"{clock}/max_freq")
    )  # fmt: skip


def _folders(files: Files, pattern: str) -> list[str]:
    """Returns the folders of a pattern that contain a file, in the order of their numbers."""
    found = {match[1] for path in files if (match := re.match(rf"({pattern})/", path))}
    return sorted(
        found, key=lambda p: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", p)]
    )


def _first(files: Files, pattern: str) -> str:
    names = sorted(path.rpartition("/")[2] for path in files if re.fullmatch(pattern, path))
    return names[0] if names else ""
