"""Temperature, battery, power monitors and graphics processor of an emulated kernel."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autotune.emulator.kernel.kernel import KernelFile
from autotune.emulator.model import Battery, Monitor, Rail, Soc, Zone

_SUPPLY = "/sys/class/power_supply"
_KGSL = "/sys/class/kgsl/kgsl-3d0"


@dataclass
class MeterState:
    """Faults of a device's power meters.

    Attributes:
        stuck_since_s: The time whose value they show from then on; None while they work.
        limit_w: The highest power that they show; None while they work.
    """

    stuck_since_s: float | None = None
    limit_w: float | None = None

    def now(self, soc: Soc) -> float:
        """Returns the time whose value is shown."""
        now = soc.clock.now()
        return now if self.stuck_since_s is None else min(now, self.stuck_since_s)

    def shown_w(self, watts: float) -> float:
        """Returns the shown value of a power."""
        return watts if self.limit_w is None else min(watts, self.limit_w)


class _Gauge:
    """Power as a meter shows it: the mean over the last whole period, with noise that is the same in every run."""

    def __init__(self, soc: Soc, state: MeterState, update_s: float, noise: float) -> None:
        self._soc, self._state, self._update_s, self._noise = soc, state, update_s, noise
        self._held: tuple[int, float] = (-1, 0.0)

    def net_w(self) -> float:
        """Returns power above idle in watts, not limited."""
        period = math.floor(self._state.now(self._soc) / self._update_s + 1e-9)
        with self._soc.lock:
            # Stored, because a stuck meter shows it for longer than the model's history.
            if period != self._held[0]:
                end = period * self._update_s
                net_w = self._soc.mean_net_w(max(0.0, end - self._update_s), end)
                error = random.Random(period).gauss(0.0, self._noise)
                self._held = (period, net_w + error * (net_w + self._soc.profile.model.idle_w))
            return self._held[1]


def sensor_files(soc: Soc, state: MeterState) -> dict[str, KernelFile]:
    """Returns files of all sensors and meters, by path."""
    profile = soc.profile
    files: dict[str, KernelFile] = {}
    for number, zone in enumerate(profile.thermal.zones):
        folder = f"/sys/class/thermal/thermal_zone{number}"
        files[f"{folder}/type"] = _constant(zone.type)
        files[f"{folder}/temp"] = KernelFile(partial(_temperature, soc, zone))
    if profile.battery is not None:
        found = _battery_files(soc, state, profile.battery)
        files |= {f"{_SUPPLY}/battery/{name}": file for name, file in found.items()}
    for number, monitor in enumerate(profile.monitors):
        folder = f"/sys/class/hwmon/hwmon{number}"
        files |= {f"{folder}/{n}": file for n, file in _monitor_files(soc, state, monitor).items()}
    files |= _gpu_files(soc)
    return files


def _constant(text: object) -> KernelFile:
    return KernelFile(lambda: f"{text}\n")


def _number(value: Callable[[], float]) -> KernelFile:
    return KernelFile(lambda: f"{round(value())}\n")


def _temperature(soc: Soc, zone: Zone) -> str:
    return f"{round(1000 * (soc.celsius() + zone.rise_k_w * soc.net_w()))}\n"


def _battery_files(soc: Soc, state: MeterState, battery: Battery) -> dict[str, KernelFile]:
    gauge = _Gauge(soc, state, battery.update_s, battery.noise)
    idle_w = soc.profile.model.idle_w
    per_ampere = {"uA": 1e6, "mA": 1e3}[battery.unit]

    def current() -> float:
        watts = state.shown_w(idle_w + gauge.net_w())
        return battery.discharge_sign * per_ampere * watts / battery.volts

    def charge_uah() -> float:
        used = soc.energy_j() / battery.volts / 3600 * 1e6
        return max(0.0, battery.charge_uah - used)

    return {
        "type": _constant("Battery"),
        "status": _constant("Discharging"),
        "present": _constant(1),
        "current_now": _number(current),
        "voltage_now": _constant(round(1e6 * battery.volts)),
        "charge_counter": _number(charge_uah),
        "charge_full": _constant(battery.charge_uah),
        "capacity": _number(lambda: 100 * charge_uah() / battery.charge_uah),
        "temp": _number(lambda: 10 * soc.celsius()),
    }


def _monitor_files(soc: Soc, state: MeterState, monitor: Monitor) -> dict[str, KernelFile]:
    gauge = _Gauge(soc, state, monitor.update_s, monitor.noise)

    def milliamperes(rail: Rail) -> float:
        return 1e3 * state.shown_w(rail.idle_w + rail.share * gauge.net_w()) / rail.volts

    files = {"name": _constant(monitor.name)}
    for channel, rail in enumerate(monitor.rails, start=1):
        files[f"in{channel}_label"] = _constant(rail.label)
        files[f"in{channel}_input"] = _constant(round(1e3 * rail.volts))
        files[f"curr{channel}_input"] = _number(partial(milliamperes, rail))
    return files


def _gpu_files(soc: Soc) -> dict[str, KernelFile]:
    gpu = soc.profile.gpu
    if gpu is None:
        return {}
    if gpu.driver == "kgsl":
        return {
            f"{_KGSL}/gpu_model": _constant(gpu.name),
            f"{_KGSL}/gpuclk": _constant(gpu.idle_hz),
            f"{_KGSL}/max_gpuclk": _constant(gpu.max_hz),
            f"{_KGSL}/devfreq/governor": _constant("msm-adreno-tz"),
        }
    return {
        "/sys/class/misc/mali0/device/gpuinfo": _constant(gpu.name),
        "/sys/class/devfreq/mali/cur_freq": _constant(gpu.idle_hz),
        "/sys/class/devfreq/mali/max_freq": _constant(gpu.max_hz),
    }
