"""Profiles of emulated devices: every constant of the model as data, with its source."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from autotune.errors import UsageError, choices
from autotune.reading import Unreadable, parse_toml

FOLDER = Path(__file__).parents[1] / "profiles"

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Khz = Annotated[int, Field(gt=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Android(_Part):
    """The device's Android."""

    release: str
    sdk: int
    board: str


class CoreModel(_Part):
    """Speed and power of a core of a cluster.

    Attributes:
        flops_per_cycle: Floating-point operations in a clock cycle of training, without waiting for memory.
        bandwidth_gb_s: Memory traffic of one core in 1e9 bytes/s.
        crowding_ghz: Clock at which a full cluster takes twice as long, because the system's own work preempts it.
        crowding_exponent: How fast this effect falls as the clock rises.
        static_w: Watts of a busy core at any clock.
        dynamic_w: Further watts of a busy core at 1 GHz.
        dynamic_exponent: Exponent of the clock in `dynamic_w`.
    """

    flops_per_cycle: Positive
    bandwidth_gb_s: Positive
    crowding_ghz: NotNegative
    crowding_exponent: Positive
    static_w: NotNegative
    dynamic_w: Positive
    dynamic_exponent: Positive


class Kernels(_Part):
    """How a cluster's core runs a schedule with known loops; docs/emulator.md describes the model.

    Attributes:
        in_order: Whether the times of loads and arithmetic add up, because the core does no work ahead of a wait.
        flops_per_cycle: Vectorised operations in a clock cycle while nothing is loaded.
        load_bytes_per_cycle: Bytes from the level-1 cache to registers.
        l1_bytes: Level-1 data cache.
        fill_bytes_per_cycle: Bytes from the level-2 to the level-1 cache.
        l2_bytes: Level-2 cache; a core's part if cores share it.
    """

    in_order: bool
    flops_per_cycle: Positive
    load_bytes_per_cycle: Positive
    l1_bytes: Annotated[int, Field(gt=0)]
    fill_bytes_per_cycle: Positive
    l2_bytes: Annotated[int, Field(gt=0)]


class ClusterProfile(_Part):
    """Cores under one clock.

    Attributes:
        core: The maker's name for the core.
        part: Arm's part number, as in `/proc/cpuinfo`.
        cpus: Their numbers, ascending.
        capacity: The kernel's `cpu_capacity`; None if the kernel has no such file.
        frequencies_khz: Possible clocks, ascending.
        governors: Available governors; the first is the initial one.
        model: Speed and power of a core.
        kernels: How a core runs a schedule with known loops.
    """

    core: str
    part: str
    cpus: Annotated[tuple[int, ...], Field(min_length=1)]
    capacity: int | None = None
    frequencies_khz: Annotated[tuple[Khz, ...], Field(min_length=1)]
    governors: Annotated[tuple[str, ...], Field(min_length=1)]
    model: CoreModel
    kernels: Kernels

    @model_validator(mode="after")
    def _rising(self) -> ClusterProfile:
        for values in (self.cpus, self.frequencies_khz):
            if list(values) != sorted(set(values)):
                raise ValueError("cpus and frequencies_khz must rise")
        return self


class SocModel(_Part):
    """Constants that the clusters share.

    Attributes:
        serial_share: Share of the operations that one core does alone.
        crowding_everywhere: Factor on `crowding_ghz` if every core of the device works.
        region_us: Microseconds that each further thread costs at the end of a parallel loop.
        waiting_share: Share of a busy core's power that it draws while it waits for a slower one.
        idle_w: Watts of the idle device.
        l3_bytes: Cache that all cores share in addition to their own; 0 without one.
        traffic_scale: The model's bytes for each byte that a schedule takes from beyond its caches.
    """

    serial_share: Share
    crowding_everywhere: Positive
    region_us: NotNegative
    waiting_share: Share
    idle_w: NotNegative
    l3_bytes: Annotated[int, Field(ge=0)]
    traffic_scale: Positive


class Zone(_Part):
    """A temperature sensor: the body's temperature plus `rise_k_w` kelvins for each watt above idle."""

    type: str
    rise_k_w: NotNegative


class Trip(_Part):
    """A body temperature from which clocks are capped: one cap for each cluster, slowest cluster first."""

    celsius: float
    caps_khz: tuple[Khz, ...]


class Thermal(_Part):
    """Heat of the whole device, as one body.

    Attributes:
        ambient_c: Temperature around it, in degrees Celsius.
        capacity_j_k: Joules that warm it by one kelvin.
        resistance_k_w: Kelvins above ambient for one continuous watt above idle.
        hysteresis_k: How far it must cool below a trip point before the caps are removed.
        zones: Sensors.
        trips: Trip points, ascending.
    """

    ambient_c: float
    capacity_j_k: Positive
    resistance_k_w: Positive
    hysteresis_k: Positive
    zones: tuple[Zone, ...]
    trips: tuple[Trip, ...]


class Battery(_Part):
    """A battery and its fuel gauge.

    Attributes:
        unit: Unit of `current_now`.
        discharge_sign: Sign of `current_now` while it discharges: -1 or 1, by vendor.
        update_s: Seconds between two values of the gauge; each is the mean since the previous one.
        noise: Relative standard deviation of a value.
        volts: Voltage, held constant.
        charge_uah: Charge when full.
    """

    unit: Literal["uA", "mA"]
    discharge_sign: Literal[-1, 1]
    update_s: Positive
    noise: NotNegative = 0.0
    volts: Positive
    charge_uah: Annotated[int, Field(gt=0)]


class Rail(_Part):
    """One channel of a power monitor: `idle_w` plus `share` of the power above idle."""

    label: str
    volts: Positive
    idle_w: NotNegative
    share: Share


class Monitor(_Part):
    """A power-monitor chip under hwmon; `noise` is the relative standard deviation of a value."""

    name: str
    update_s: Positive
    noise: NotNegative = 0.0
    rails: tuple[Rail, ...]


class GpuProfile(_Part):
    """The graphics processor as the driver shows it; there is no model of its speed."""

    driver: Literal["kgsl", "mali"]
    name: str
    idle_hz: int
    max_hz: int


class Profile(_Part):
    """An emulated device.

    Attributes:
        name: Its name in this project, and the beginning of its serial.
        maker: Its maker.
        title: The maker's name for it.
        soc: The chip.
        abi: `arm64-v8a` on Android, `aarch64` elsewhere.
        machine: Output of `uname -m`.
        kernel: Output of `uname -r`.
        android: Its Android; None for a board without it.
        distribution: `PRETTY_NAME` of a board's Linux; empty on Android.
        compatible: A board's `/proc/device-tree/compatible`.
        rooted: Whether it gives root.
        memory_bytes: Main memory.
        disk_bytes: Space for pushed files.
        opencl: Path of its OpenCL library; empty without one.
        clusters: Clusters from the slowest to the fastest.
        model: Constants that the clusters share.
        thermal: Heat.
        battery: Its battery; None without one.
        monitors: Power monitors.
        gpu: Its graphics processor; None if there is none or it is unknown.
        sources: Sources of the numbers.
    """

    name: str
    maker: str
    title: str
    soc: str
    abi: str
    machine: str
    kernel: str
    android: Android | None = None
    distribution: str = ""
    compatible: tuple[str, ...] = ()
    rooted: bool
    memory_bytes: Annotated[int, Field(gt=0)]
    disk_bytes: Annotated[int, Field(gt=0)]
    opencl: str = ""
    clusters: Annotated[tuple[ClusterProfile, ...], Field(min_length=1)]
    model: SocModel
    thermal: Thermal
    battery: Battery | None = None
    monitors: tuple[Monitor, ...] = ()
    gpu: GpuProfile | None = None
    sources: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        if self.cpus != tuple(range(len(self.cpus))):
            raise ValueError("the clusters must hold every core from 0 on once")
        trips = self.thermal.trips
        if [t.celsius for t in trips] != sorted({t.celsius for t in trips}):
            raise ValueError("trip points must rise")
        if any(len(trip.caps_khz) != len(self.clusters) for trip in trips):
            raise ValueError("a trip point has one cap a cluster")
        if any(b.celsius - a.celsius <= self.thermal.hysteresis_k for a, b in pairwise(trips)):
            raise ValueError("trip points must lie further apart than the hysteresis")
        return self

    @property
    def cpus(self) -> tuple[int, ...]:
        """Numbers of all cores."""
        return tuple(sorted(cpu for cluster in self.clusters for cpu in cluster.cpus))

    def cluster_of(self, cpu: int) -> int:
        """Returns the index of the cluster that a core belongs to.

        Raises:
            UsageError: There is no such core.
        """
        for index, cluster in enumerate(self.clusters):
            if cpu in cluster.cpus:
                return index
        raise UsageError(f"{self.name} has no core {cpu}")


def names() -> tuple[str, ...]:
    """Returns the names of the shipped profiles."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def parse(text: str, where: str) -> Profile:
    """Parses a profile from TOML.

    Raises:
        UsageError: It is not TOML, or not a profile.
    """
    try:
        # Validated through JSON: pydantic's strict mode accepts JSON's arrays as tuples, but not Python's lists.
        return Profile.model_validate_json(json.dumps(parse_toml(text)))
    except (Unreadable, ValidationError, TypeError) as error:
        raise UsageError(f"{where} is not a profile of an emulated device: {error}") from error


@cache
def load(name: str) -> Profile:
    """Returns a shipped profile.

    Raises:
        UsageError: There is none of this name.
    """
    if name not in names():
        raise UsageError(f"there is no emulated '{name}'", hint=choices(name, names(), "there are"))
    path = FOLDER / f"{name}.toml"
    return parse(path.read_text(encoding="utf-8"), path.name)
