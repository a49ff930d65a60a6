"""Importer of the raw traces published with EMDL'21: USB and battery readings of a Meizu 16T while networks train.

A folder of the archive holds one setting of the phone, which its name tells: `MEIZU_Core_f0` (the cores of a mask,
clocks left to the system), `MEIZU_Freq_1708800` (clocks held, cores left to the system). `usage_monitor/` has a
block about every half second with a time stamp, currents, voltages and what /proc tells; `train_stamp/` says when
each network and batch size began and ended; `train_bench/` has the trainer's own log; `processed_data/` is what the
authors made of them.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.errors import UsageError
from autotune.power import checks
from autotune.power.trace import Baseline, Floats, Trace, net_energy

_BLOCK = re.compile(
    r"NEW DATA (\d+)\s+usb_current (-?\d+)\s+usb_voltage (-?\d+)\s+"
    r"battery_current (-?\d+)\s+battery_voltage (-?\d+)"
)
_STAMP = re.compile(r"^(Begin|End) (?:training|trainning)\s*:\s*(\d+)", re.MULTILINE)
_LATENCY = re.compile(r"Training latency of (\w+) is : ([\d.]+) ms \(batchsize is (\d+)\)")
_NAME = re.compile(r".*_(?:Core_([0-9a-f]{1,2})|Freq_(\d+))")
_CORE = re.compile(r"^cpu(\d+) ([\d ]+)$", re.MULTILINE)
_USER_HZ = 100
_WORKS = 0.5
"""A core trains where it is busy for more than this share of the time; in the archive others are for about 0.2."""
_MICRO = 1e-6
NONE = Baseline(0.0, 0.0)
"""No baseline: all of the energy."""


@dataclass(frozen=True)
class Readings:
    """Samples over time, in seconds, amperes and volts, each of shape (n,).

    A battery's current is positive while it discharges. The archive has it the other way round: the phone's
    readings fall far below zero where the work needs more than USB gives.
    """

    times_s: Floats
    usb_a: Floats
    usb_v: Floats
    battery_a: Floats
    battery_v: Floats

    def usb(self) -> Trace:
        """Power over USB."""
        return Trace(self.times_s, self.usb_a * self.usb_v)

    def total(self) -> Trace:
        """Power over USB and from the battery."""
        return Trace(self.times_s, self.usb_a * self.usb_v + self.battery_a * self.battery_v)


@dataclass(frozen=True)
class TracedRun:
    """One network at one batch size.

    Attributes:
        network: Its name in the archive.
        batch: Batch size.
        start_s: When training began, in the readings' time.
        end_s: When it ended.
        step_s: Seconds of a step by the trainer's own log; None where that is missing.
        usb_j: Energy over USB in the window.
        total_j: Energy over USB and from the battery.
        saturated: Why the USB meter looks cut off; empty where it does not.
    """

    network: str
    batch: int
    start_s: float
    end_s: float
    step_s: float | None
    usb_j: float
    total_j: float
    saturated: str

    @property
    def duration_s(self) -> float:
        """Length of the training window, warm-up included."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Setting:
    """What the phone was set to.

    Attributes:
        cpus: Cores that the trainer was held to; None where they were left to the system.
        khz: Clock that the cores were held at; None where it was left to the system.
    """

    cpus: tuple[int, ...] | None
    khz: int | None


def settings(folder: Path) -> list[Path]:
    """Folders of settings in a folder of the archive, by name; the folder itself where it has none."""
    found = sorted(path.parent for path in folder.glob("*/usage_monitor") if path.is_dir())
    return found or [folder]


def setting(folder: Path) -> Setting:
    """What a setting's folder says by its name.

    Raises:
        UsageError: It says nothing that is known.
    """
    match = _NAME.fullmatch(folder.resolve().name)
    mask = int(match[1], 16) if match and match[1] else None
    if match is None or mask == 0:
        raise UsageError(
            f"{folder}: its name does not tell cores or clocks",
            hint="the archive's are MEIZU_Core_<mask of cores, hexadecimal> and MEIZU_Freq_<kHz>",
        )
    if mask is None:
        return Setting(None, int(match[2]))
    return Setting(tuple(cpu for cpu in range(8) if mask >> cpu & 1), None)


def runs(folder: Path) -> list[TracedRun]:
    """All runs of a setting whose raw readings are there, by network and batch size.

    Raises:
        UsageError: It is no such folder.
    """
    monitors = sorted((folder / "usage_monitor").glob("usage_monitor_*.result"))
    if not monitors:
        raise UsageError(
            f"{folder} holds no usage_monitor/usage_monitor_*.result",
            hint="give a folder of the published archive, such as MEIZU_Core_f0",
        )
    found = []
    for monitor in monitors:
        network = monitor.stem.removeprefix("usage_monitor_")
        readings = read_monitor(monitor)
        steps = read_steps(folder / "train_bench" / f"train_bench_{network}.result")
        for stamp in sorted(
            (folder / "train_stamp" / network).glob("train_stamp_*.result"),
            key=lambda path: int(path.stem.rpartition("_")[2]),
        ):
            batch = int(stamp.stem.rpartition("_")[2])
            start, end = read_stamp(stamp)
            run = _run(network, batch, (start, end), steps.get(batch), readings)
            if run is not None:
                found.append(run)
    return found


def _run(
    network: str,
    batch: int,
    window: tuple[float, float],
    step_s: float | None,
    readings: Readings,
) -> TracedRun | None:
    start, end = window
    inside = (readings.times_s > start) & (readings.times_s <= end)
    if not inside.any():
        return None
    return TracedRun(
        network,
        batch,
        start,
        end,
        step_s,
        net_energy(readings.usb(), start, end, NONE).joules,
        net_energy(readings.total(), start, end, NONE).joules,
        checks.saturated(readings.usb_a[inside]),
    )


def read_monitor(path: Path) -> Readings:
    """A raw `usage_monitor` file.

    Raises:
        UsageError: It cannot be read, or has no block.
    """
    rows = [tuple(map(float, block)) for block in _BLOCK.findall(_text(path))]
    if not rows:
        raise UsageError(f"{path} has no block of readings")
    return _readings(np.asarray(rows, np.float64))


def read_cores(path: Path) -> list[tuple[float, dict[int, float]]]:
    """Seconds that each core had worked (/proc/stat, man 5 proc), by the readings' time, of a raw monitor file.

    Raises:
        UsageError: It cannot be read.
    """
    found = []
    for block in _text(path).split("NEW DATA ")[1:]:
        stamp = block.split(maxsplit=1)[0]
        ticks = {
            int(cpu): [int(word) for word in words.split()] for cpu, words in _CORE.findall(block)
        }
        worked = {cpu: (sum(t[:3]) + sum(t[5:8])) / _USER_HZ for cpu, t in ticks.items()}
        if stamp.isdecimal() and worked:
            found.append((int(stamp) / 1e3, worked))
    return sorted(found, key=lambda row: row[0])


def busy_cores(folder: Path, found: Sequence[TracedRun]) -> tuple[int, ...]:
    """Cores that worked for most of the time of a setting's runs; none where that was not recorded.

    Of all runs together: the shortest have too few readings, and their cores do much else.

    Args:
        folder: The setting's.
        found: Its runs.
    """
    seconds = 0.0
    busy: defaultdict[int, float] = defaultdict(float)
    for network in dict.fromkeys(run.network for run in found):
        rows = read_cores(folder / "usage_monitor" / f"usage_monitor_{network}.result")
        for run in (run for run in found if run.network == network):
            inside = [row for row in rows if run.start_s < row[0] <= run.end_s]
            if len(inside) > 1:
                (begin, first), (end, last) = inside[0], inside[-1]
                seconds += end - begin
                for cpu, before in first.items():
                    busy[cpu] += last.get(cpu, before) - before
    return tuple(cpu for cpu in sorted(busy) if busy[cpu] > _WORKS * seconds)


def read_processed(path: Path) -> Readings:
    """The authors' own table of a network's readings.

    Raises:
        UsageError: It cannot be read, or lacks a column.
    """
    columns = ("stamp", "usb_current", "usb_voltage", "battery_current", "battery_voltage")
    try:
        rows = [
            [float(row[c] or math.nan) for c in columns]
            for row in csv.DictReader(_text(path).splitlines())
        ]
    except (KeyError, ValueError) as error:
        raise UsageError(f"{path} is no table of readings: {error}") from error
    return _readings(np.asarray(rows, np.float64))


def _readings(rows: Floats) -> Readings:
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return Readings(
        rows[:, 0] / 1e3,
        rows[:, 1] * _MICRO,
        rows[:, 2] * _MICRO,
        -rows[:, 3] * _MICRO,
        rows[:, 4] * _MICRO,
    )


def read_stamp(path: Path) -> tuple[float, float]:
    """When training began and ended, in seconds.

    Raises:
        UsageError: It cannot be read, or lacks one.
    """
    found = {word: int(stamp) / 1e3 for word, stamp in _STAMP.findall(_text(path))}
    if set(found) != {"Begin", "End"}:
        raise UsageError(f"{path} does not say when training began and ended")
    return found["Begin"], found["End"]


def read_steps(path: Path) -> dict[int, float]:
    """Seconds of a training step by batch size, from the trainer's log; empty where there is none."""
    if not path.exists():
        return {}
    return {int(b): float(ms) / 1e3 for _, ms, b in _LATENCY.findall(_text(path))}


def read_latencies(path: Path) -> dict[int, float]:
    """The authors' own table of seconds of a training step, by batch size.

    Raises:
        UsageError: It cannot be read, or lacks a column.
    """
    try:
        rows = list(csv.DictReader(_text(path).splitlines()))
        return {int(float(row["batchsize"])): float(row["expr_train"]) / 1e3 for row in rows}
    except (KeyError, ValueError) as error:
        raise UsageError(f"{path} is no table of latencies: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
