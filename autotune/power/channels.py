"""A device's meters as watts or joules, read from the texts of their files. Each channel is one figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from autotune.devices import Files, number, text
from autotune.power import nvml

Kind = Literal["battery", "usb", "odpm", "iio", "hwmon", "rapl", "nvml", "csv"]
Quantity = Literal["watts", "joules"]

PATTERNS = (
    "/sys/class/power_supply/*/type",
    "/sys/class/power_supply/*/status",
    "/sys/class/power_supply/*/online",
    "/sys/class/power_supply/*/current_now",
    "/sys/class/power_supply/*/voltage_now",
    "/sys/class/power_supply/*/power_now",
    "/sys/class/power_supply/*/charge_counter",
    "/sys/bus/iio/devices/iio:device*/name",
    "/sys/bus/iio/devices/iio:device*/energy_value",
    "/sys/bus/iio/devices/iio:device*/enabled_rails",
    "/sys/bus/iio/devices/iio:device*/in_power*_input",
    "/sys/bus/iio/devices/iio:device*/in_power*_raw",
    "/sys/bus/iio/devices/iio:device*/in_power*_scale",
    "/sys/bus/iio/devices/iio:device*/rail_name_*",
    "/sys/class/hwmon/hwmon*/name",
    "/sys/class/hwmon/hwmon*/power*_input",
    "/sys/class/hwmon/hwmon*/power*_label",
    "/sys/class/hwmon/hwmon*/curr*_input",
    "/sys/class/hwmon/hwmon*/in*_input",
    "/sys/class/hwmon/hwmon*/in*_label",
    "/sys/class/powercap/*/name",
    "/sys/class/powercap/*/energy_uj",
    "/sys/class/powercap/*/max_energy_range_uj",
)
"""Patterns of the files that `find` needs."""

_TOTAL_RAILS = ("VDD_IN", "POM_5V_IN", "VIN", "VDD_TOTAL", "TOTAL")
"""Labels of rails that feed all others. On NVIDIA's Jetsons these are VDD_IN on TX1, TX2, Xavier NX, Orin NX and
Orin
Nano, POM_5V_IN on Nano, and VIN on Thor. AGX Xavier and AGX Orin have none: their SYS5V and VIN_SYS_5V0 feed parts
other than the processor (jetson_stats, issues 51, 344 and 900).
"""
_WITHIN = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
"""Rails that are fed by another measured rail: AGX Orin's memory (Jetson Linux Developer Guide)."""
_INA3221_CHANNELS = 3
"""Higher channels are sums and shunts: `curr4` adds the channels, `in4` to `in6` are shunts (hwmon/ina3221.rst)."""
_POWER_MONITOR = re.compile(r"ina\d+|isl28022|ltc294[57]|ltc4151|sq52206")
"""Names of chips that are used to measure a board (Linux, Documentation/hwmon). Other chips report a part's power:
a
graphics card's (amdgpu), a drive's, a processor's.
"""
_MICROVOLTS_FROM = 100_000
"""A supply's voltage from here on is in microvolts, as the kernel documents. Some drivers give millivolts."""
_ENERGY_LINE = re.compile(r"CH\d+\(T=\d+\)\[([^\]]+)\],\s*(\d+)")


@dataclass(frozen=True)
class Channel:
    """One figure of a meter.

    Attributes:
        name: The rail or the supply, for people.
        kind: The kind of meter.
        quantity: `watts` at present, or `joules` in total.
        files: Files that are read in one sample.
        whole: Whether it is the whole device's supply, or one of the parts that add up to it.
        scale: Watts (or joules) for one unit of the product of the files; negative if the sign is reversed.
        wrap_j: Joules after which a counter restarts; None if it does not.
        calibrated: Whether unit and sign are known; a battery's vary by maker.
        rail: The rail, for a file with several rails.
    """

    name: str
    kind: Kind
    quantity: Quantity
    files: tuple[str, ...]
    whole: bool = True
    scale: float = 1.0
    wrap_j: float | None = None
    calibrated: bool = True
    rail: str = ""

    def value(self, texts: Mapping[str, str | None]) -> float | None:
        """Returns watts or joules of one sample; None if a file was not read."""
        product = self.scale
        for path in self.files:
            raw = texts.get(path)
            if raw is None:
                return None
            if path.endswith("/energy_value"):
                found = [j for rail, j in _ENERGY_LINE.findall(raw) if self.rail in ("", rail)]
                return sum(map(float, found)) * self.scale if found else None
            if self.kind == "nvml":
                return nvml.watts(raw)
            try:
                figure = float(raw)
            except ValueError:
                return None
            if self.kind in ("battery", "usb") and path.endswith("/voltage_now"):
                figure *= 1e-6 if abs(figure) >= _MICROVOLTS_FROM else 1e-3
            if path.endswith("/power_now"):
                # Some drivers reverse the sign while discharging. While charging, there are no joules.
                figure = abs(figure)
            product *= figure
        return product


@dataclass(frozen=True)
class Meter:
    """Measures the power of the whole device as a sum of channels.

    Attributes:
        name: Name for people and for `--meter`.
        channels: Channels that are added up.
        update_s: Approximate seconds between new values; None if unknown.
        status_files: Files that show whether the battery charges.
        parts: Channels that are included in one of the others: shown, but not added.
        command: A program that prints its values; empty if they are read from files.
        source: Source that the host reads, as `Stream` takes it; empty if the device reads the meter.
    """

    name: str
    channels: tuple[Channel, ...]
    update_s: float | None = None
    status_files: tuple[str, ...] = ()
    parts: tuple[Channel, ...] = ()
    command: tuple[str, ...] = ()
    source: str = ""

    @property
    def printed(self) -> bool:
        """Whether its values are lines of a program, not files."""
        return bool(self.command or self.source)

    @property
    def rails(self) -> tuple[Channel, ...]:
        """Channels that can be shown separately: all of them if there are several, and the parts."""
        return (*(self.channels if len(self.channels) > 1 else ()), *self.parts)

    @property
    def files(self) -> tuple[str, ...]:
        """Files to sample."""
        if self.printed:
            return ()
        own = [path for channel in (*self.channels, *self.parts) for path in channel.files]
        return tuple(dict.fromkeys([*own, *self.status_files]))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Meter:
        """Returns the meter from the output of `dataclasses.asdict`, after JSON.

        Raises:
            TypeError: The value is something else.
        """
        lists = {k: tuple(v) for k, v in value.items() if isinstance(v, list)}
        for name in ("channels", "parts"):
            lists[name] = tuple(
                Channel(**{**c, "files": tuple(c["files"])}) for c in value.get(name, ())
            )
        return cls(**{**value, **lists})

    def calibrated(self, scale: float) -> Meter:
        """Returns the meter with the battery's scale."""
        return replace(
            self,
            channels=tuple(
                c if c.calibrated else replace(c, scale=scale, calibrated=True)
                for c in self.channels
            ),
        )


def find(files: Files, *, any_chip: bool = False) -> tuple[Meter, ...]:
    """Finds meters of the whole device, the most trustworthy first.

    Cumulative counters of rails come before sampled monitors. A fuel gauge comes last, because it is slow and does
    not see the power from USB; it is added to the USB supply's power.

    Args:
        files: Contents by path, for `PATTERNS`.
        any_chip: Whether every hwmon chip that reports power is accepted if none is a power monitor.
    """
    found = [
        *_odpm(files),
        *_hwmon(files, any_chip=any_chip),
        *_iio(files),
        *_rapl(files),
        *_supplies(files),
    ]
    return tuple(meter for meter in found if meter.channels)


def nvml_meter(probed: str, interval_s: float) -> Meter | None:
    """Returns a meter for the total power of NVIDIA's GPUs; None if no GPU reports it.

    Args:
        probed: Answer of `nvidia-smi` to `nvml.query`.
        interval_s: Seconds between readings.
    """
    rows = nvml.rows(probed.splitlines())
    channels = tuple(
        Channel(f"gpu{index}", "nvml", "watts", (index,), False)
        for index, text in rows
        if nvml.watts(text) is not None
    )
    instant = any("," in text for _, text in rows)
    command = nvml.query(instant=instant, interval_s=interval_s)
    return Meter("nvml", channels, command=command) if channels else None


def stream_meter(source: str) -> Meter:
    """Returns a meter that the host reads from a source; see `Stream`."""
    return Meter("csv", (Channel(source, "csv", "watts", (source,)),), source=source)


def looked_for() -> str:
    """Returns the places that were searched, for the error message when there is no meter."""
    return (
        "power rails (ODPM, /sys/bus/iio), power monitors (INA, /sys/class/hwmon), RAPL (/sys/class/powercap), "
        "battery and USB (/sys/class/power_supply), NVML (nvidia-smi)"
    )


def _odpm(files: Files) -> list[Meter]:
    """Finds Google's on-device power monitor: total joules of each rail, in microwatt-seconds."""
    paths = _matching(files, r"/sys/bus/iio/devices/iio:device\d+/energy_value")
    channels = tuple(
        Channel(rail, "odpm", "joules", (path,), False, 1e-6, rail=rail)
        for path in paths
        for rail, _ in _ENERGY_LINE.findall(text(files, path))
    )
    return [Meter("odpm", channels)]


def _hwmon(files: Files, *, any_chip: bool) -> list[Meter]:
    """Finds INA monitors and similar chips: power in microwatts, or millivolts times milliamperes.

    A chip is used if it is a power monitor, or has a rail that feeds all others.
    """
    every: list[Channel] = []
    for path in _matching(files, r"/sys/class/hwmon/hwmon\d+/power\d+_input"):
        label = text(files, path.replace("_input", "_label")) or text(
            files, f"{_folder(path)}/name"
        )
        every.append(Channel(label, "hwmon", "watts", (path,), False, 1e-6))
    with_power = {_folder(c.files[0]) for c in every}
    for path in _matching(files, r"/sys/class/hwmon/hwmon\d+/curr\d+_input"):
        folder, name = _folder(path), path.rpartition("/")[2]
        channel = name.removeprefix("curr").removesuffix("_input")
        volts = f"{folder}/in{channel}_input"
        of_sums = (
            text(files, f"{folder}/name").startswith("ina3221") and int(channel) > _INA3221_CHANNELS
        )
        if folder in with_power or volts not in files or of_sums:
            continue
        label = text(files, f"{folder}/in{channel}_label") or f"{folder.rpartition('/')[2]}.{name}"
        every.append(Channel(label, "hwmon", "watts", (volts, path), False, 1e-6))
    feeding = {_folder(c.files[0]) for c in every if c.name.upper() in _TOTAL_RAILS}

    def is_monitor(channel: Channel) -> bool:
        folder = _folder(channel.files[0])
        chip = text(files, f"{folder}/name").lower()
        return folder in feeding or _POWER_MONITOR.fullmatch(chip) is not None

    monitors = [channel for channel in every if is_monitor(channel)]
    return [_monitors("hwmon", monitors or (every if any_chip else []))]


def _monitors(name: str, every: Sequence[Channel]) -> Meter:
    """Adds up rails. Rails behind a total rail, or behind another one, are already included and are only shown."""
    there = {c.name.upper() for c in every}
    totals = tuple(replace(c, whole=True) for c in every if c.name.upper() in _TOTAL_RAILS)
    if not totals:
        totals = tuple(c for c in every if _WITHIN.get(c.name.upper()) not in there)
    return Meter(
        name, totals, parts=tuple(c for c in every if c.files not in {t.files for t in totals})
    )


def _iio(files: Files) -> list[Meter]:
    """Finds INA monitors that are industrial I/O devices.

    Older Jetson kernels give power directly in milliwatts. Linux's own driver (ina2xx-adc) gives `in_power2_raw`
    and `in_power2_scale` (ABI/testing/sysfs-bus-iio).
    """
    every = []
    for raw in _matching(files, r"/sys/bus/iio/devices/iio:device\d+/in_power\d+_raw"):
        folder, scale = _folder(raw), raw.replace("_raw", "_scale")
        chip = text(files, f"{folder}/name").lower()
        if scale in files and _POWER_MONITOR.fullmatch(chip):
            name = f"{chip}.{folder.rpartition('/')[2]}"
            every.append(Channel(name, "iio", "watts", (raw, scale), False, 1e-3))
    for path in _matching(files, r"/sys/bus/iio/devices/iio:device\d+/in_power\d+_input"):
        channel = path.rpartition("/")[2].removeprefix("in_power").removesuffix("_input")
        label = text(files, f"{_folder(path)}/rail_name_{channel}") or path
        every.append(Channel(label, "iio", "watts", (path,), False, 1e-3))
    return [_monitors("iio", every)]


def _rapl(files: Files) -> list[Meter]:
    """Finds Intel's and AMD's counters: packages and memory, in microjoules.

    A package includes its cores and graphics.

    A package with two interfaces (registers, and memory-mapped ones as `intel-rapl-mmio`) has one counter. The
    first interface is used.
    """
    found: dict[tuple[str, str], Channel] = {}
    paths = _matching(files, r"/sys/class/powercap/[^/]+/energy_uj")
    for path in sorted(paths, key=lambda p: "-mmio" in p):
        folder = _folder(path)
        name = text(files, f"{folder}/name")
        top = re.fullmatch(r"[a-z-]+:\d+", folder.rpartition("/")[2]) is not None
        if number(files, path) is None or not (
            (top and name.startswith("package")) or name == "dram"
        ):
            continue
        package = name if top else text(files, f"{folder.rpartition(':')[0]}/name")
        wrap = number(files, f"{folder}/max_energy_range_uj")
        found.setdefault(
            (package, name),
            Channel(name, "rapl", "joules", (path,), False, 1e-6, wrap * 1e-6 if wrap else None),
        )
    return [Meter("rapl", tuple(found.values()), update_s=0.001)]


def _supplies(files: Files) -> list[Meter]:
    """Combines battery and USB: the power that charges the battery comes from USB and is not used by the device.

    A USB supply that is not online gives nothing, even if its driver still shows an old value.
    """
    channels, status = [], []
    every = dict.fromkeys(
        map(_folder, _matching(files, r"/sys/class/power_supply/[^/]+/(current|power)_now"))
    )
    cells = _cells([f for f in every if text(files, f"{f}/type").lower() == "battery"])
    for folder in every:
        kind, name = text(files, f"{folder}/type").lower(), folder.rpartition("/")[2]
        amperes, volts, watts = (f"{folder}/{n}_now" for n in ("current", "voltage", "power"))
        by_current = number(files, amperes) is not None and number(files, volts) is not None
        offline = kind.startswith("usb") and number(files, f"{folder}/online") == 0
        if offline or (kind == "battery" and folder not in cells):
            continue
        if kind == "battery" and by_current:
            channels.append(
                Channel(name, "battery", "watts", (amperes, volts), False, calibrated=False)
            )
        elif kind == "battery" and number(files, watts) is not None:
            # A laptop battery that counts energy, not charge: microwatts.
            channels.append(Channel(name, "battery", "watts", (watts,), False, 1e-6))
        elif kind.startswith("usb") and by_current:
            channels.append(Channel(name, "usb", "watts", (amperes, volts), False, 1e-6))
        else:
            continue
        if kind == "battery" and f"{folder}/status" in files:
            status.append(f"{folder}/status")
    if not any(channel.kind == "battery" for channel in channels):
        channels = []
    return [Meter("battery", tuple(channels), update_s=0.25, status_files=tuple(status))]


def _cells(folders: Sequence[str]) -> Sequence[str]:
    """Returns distinct batteries. Several gauges may watch one cell (a Pixel's `battery` and `maxfg`).

    ACPI numbers its batteries, and each is distinct.
    """
    names = {folder: folder.rpartition("/")[2] for folder in folders}
    if all(re.fullmatch(r"BAT\w", name) for name in names.values()):
        return folders
    return [f for f in folders if names[f] == "battery"] or folders[:1]


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _matching(files: Files, pattern: str) -> Sequence[str]:
    return sorted(
        (path for path in files if re.fullmatch(pattern, path)),
        key=lambda p: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", p)],
    )
