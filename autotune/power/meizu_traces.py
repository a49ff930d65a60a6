"""Importer of the raw traces published with EMDL'21: USB and battery readings of a Meizu 16T while networks train.

A folder of the archive holds one setting of the phone. `usage_monitor/` has a block about every half second with a
time stamp, currents and voltages; `train_stamp/` says when each network and batch size began and ended;
`train_bench/` has the trainer's own log; `processed_data/` is what the authors made of them.
"""

from __future__ import annotations

import csv
import math
import re
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
