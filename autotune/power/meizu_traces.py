"""Imports the raw traces published with EMDL'21: USB and battery readings of a Meizu 16T that trains networks.

A folder of the archive holds one setting of the phone. Its name gives the setting: `MEIZU_Core_f0` (the cores of a
mask, free clocks), `MEIZU_Freq_1708800` (fixed clocks, free cores). `usage_monitor/` has a block about every half
second with a time stamp, currents, voltages and values from /proc. `train_stamp/` has the beginning and end of each
network and batch size. `train_bench/` has the trainer's own log. `processed_data/` has the authors' results.

Power readings may be missing, for a whole trace or for some blocks. The rest is still read, and energy is None.
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.errors import UsageError
from autotune.power import checks
from autotune.power.trace import Baseline, Floats, Trace, net_energy
from autotune.reading import DOCUMENT, read_bytes, reading

_BLOCK = re.compile(r"NEW DATA (\d+)")
_POWER = tuple(
    re.compile(rf"^(?:NEW DATA \d+[ \t]+)?{name}[ \t]+(-?\d+)[ \t\r]*$", re.MULTILINE)
    for name in ("usb_current", "usb_voltage", "battery_current", "battery_voltage")
)
_STAMP = re.compile(r"^(Begin|End) (?:training|trainning)\s*:\s*(\d+)", re.MULTILINE)
_LATENCY = re.compile(r"Training latency of (\w+) is : ([\d.]+) ms \(batchsize is (\d+)\)")
_NAME = re.compile(r".*_(?:Core_([0-9a-f]{1,2})|Freq_(\d+))")
_CORE = re.compile(r"^cpu(\d+) ([\d ]+)$", re.MULTILINE)
_MEMORY = tuple(re.compile(rf"^{name}:\s+(\d+) kB", re.MULTILINE) for name in ("VmHWM", "VmRSS"))
_MOST_BLOCKS = 200_000
_USER_HZ = 100
_WORKS = 0.5
"""A core trains if it is busy for more than this share of the time.

In the archive, other cores are busy for about 0.2.
"""
_MICRO = 1e-6
_SHORTEST_S, _LONGEST_S, _MOST_WATTS = 1e-9, 1e7, 1e3
"""Limits of what is believed."""
NONE = Baseline(0.0, 0.0)
"""No baseline: energy is the total."""


@dataclass(frozen=True)
class Readings:
    """Samples over time, in seconds, amperes and volts, each of shape (n,); NaN if there is no reading.

    A battery's current is positive while it discharges. The archive has the opposite sign: the phone's readings
    fall far below zero when the work needs more than USB gives.
    """

    times_s: Floats
    usb_a: Floats
    usb_v: Floats
    battery_a: Floats
    battery_v: Floats

    def usb(self) -> Trace:
        """Returns the power over USB, at the times when it was read."""
        return self._known(self.usb_a * self.usb_v)

    def total(self) -> Trace:
        """Returns the power over USB and from the battery, at the times when both were read."""
        return self._known(self.usb_a * self.usb_v + self.battery_a * self.battery_v)

    def _known(self, watts: Floats) -> Trace:
        known = np.isfinite(watts)
        return Trace(self.times_s[known], watts[known])


@dataclass(frozen=True)
class TracedRun:
    """One network at one batch size.

    Attributes:
        network: Its name in the archive.
        batch: Batch size.
        start_s: When training began, in the readings' time.
        end_s: When it ended.
        step_s: Seconds of a step in the trainer's own log; None if missing.
        usb_j: Energy over USB in the window; None without readings.
        total_j: Energy over USB and from the battery; None without readings of both.
        saturated: Why the USB meter looks cut off; empty if it does not.
        memory_bytes: Peak memory of the trainer; None if unknown.
        cores_busy: Mean number of busy cores, whatever they worked for; None if unknown.
    """

    network: str
    batch: int
    start_s: float
    end_s: float
    step_s: float | None
    usb_j: float | None
    total_j: float | None
    saturated: str
    memory_bytes: int | None = None
    cores_busy: float | None = None

    @property
    def duration_s(self) -> float:
        """Length of the training window, warm-up included."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Setting:
    """A setting of the phone.

    Attributes:
        cpus: Cores that the trainer was restricted to; None if the system chose.
        khz: Fixed clock of the cores; None if the system chose.
    """

    cpus: tuple[int, ...] | None
    khz: int | None


def settings(folder: Path) -> list[Path]:
    """Returns folders of settings in a folder of the archive, by name; or the folder itself if it has none."""
    found = sorted(path.parent for path in folder.glob("*/usage_monitor") if path.is_dir())
    return found or [folder]


def setting(folder: Path) -> Setting:
    """Parses a setting from its folder's name.

    Raises:
        UsageError: The name has no known form.
    """
    match = _NAME.fullmatch(folder.resolve().name)
    mask = int(match[1], 16) if match and match[1] else None
    if match is None or mask == 0:
        raise UsageError(
            f"{folder}: its name does not say which cores or clocks",
            hint="the archive's are MEIZU_Core_<mask of cores, hexadecimal> and MEIZU_Freq_<kHz>",
        )
    if mask is None:
        return Setting(None, int(match[2]))
    return Setting(tuple(cpu for cpu in range(8) if mask >> cpu & 1), None)


def runs(folder: Path) -> list[TracedRun]:
    """Reads all runs of a setting, by network and batch size. Missing values are None.

    Raises:
        UsageError: It is not such a folder.
        RecordError: A file in it is damaged, or exceeds a limit.
    """
    with reading(folder):
        return _runs(folder)


def _runs(folder: Path) -> list[TracedRun]:
    monitors = sorted((folder / "usage_monitor").glob("usage_monitor_*.result"))
    if not monitors:
        raise UsageError(
            f"{folder} holds no usage_monitor/usage_monitor_*.result",
            hint="give a folder of the published archive, such as MEIZU_Core_f0",
        )
    found = []
    for monitor in monitors:
        network = monitor.stem.removeprefix("usage_monitor_")
        text = _text(monitor)
        readings, memory, cores = _monitor(monitor, text), _memory(text), _cores(text)
        performance = read_performance(
            folder / "processed_data" / network / f"performance_{network}.csv"
        )
        steps = read_steps(folder / "train_bench" / f"train_bench_{network}.result")
        for stamp in sorted(
            (folder / "train_stamp" / network).glob("train_stamp_*.result"),
            key=lambda path: int(path.stem.rpartition("_")[2]),
        ):
            batch = int(stamp.stem.rpartition("_")[2])
            start, end = read_stamp(stamp)
            known_bytes, known_cores = performance.get(batch, (None, None))
            inside = [size for stamp_s, size in memory if start < stamp_s <= end]
            busy, seconds = _busy(cores, start, end)
            usb, total, saturated = _energy(readings, start, end)
            run = TracedRun(
                network,
                batch,
                start,
                end,
                steps.get(batch),
                usb,
                total,
                saturated,
                max(inside) if inside else known_bytes,
                sum(busy.values()) / seconds if seconds else known_cores,
            )
            _check(run)
            found.append(run)
    return found


def _check(run: TracedRun) -> None:
    """Refuses a duration, a time or an energy that no run has.

    Raises:
        ValueError: The run has one.
    """
    where = f"{run.network} at batch size {run.batch}"
    for what, seconds in (("duration", run.duration_s), ("time of a step", run.step_s)):
        if seconds is not None and not _SHORTEST_S <= seconds <= _LONGEST_S:
            raise ValueError(f"{where}: a {what} of {seconds:.4g} s")
    for joules in (run.usb_j, run.total_j):
        if joules is not None and not 0 <= joules <= _MOST_WATTS * run.duration_s:
            raise ValueError(f"{where}: {joules:.4g} J in {run.duration_s:.4g} s")


def _energy(readings: Readings, start: float, end: float) -> tuple[float | None, float | None, str]:
    """Returns joules over USB and in total in a window (None without readings), and why the meter looks cut off."""
    joules = []
    for trace in (readings.usb(), readings.total()):
        known = len(trace.between(start, end).watts) > 0
        joules.append(net_energy(trace, start, end, NONE).joules if known else None)
    inside = (readings.times_s > start) & (readings.times_s <= end) & np.isfinite(readings.usb_a)
    saturated = checks.saturated(readings.usb_a[inside]) if inside.any() else ""
    return joules[0], joules[1], saturated


def read_monitor(path: Path) -> Readings:
    """Reads a raw `usage_monitor` file.

    Raises:
        UsageError: It cannot be read, or has no block.
    """
    return _monitor(path, _text(path))


def _monitor(path: Path, text: str) -> Readings:
    rows = []
    for stamp, block in _blocks(text):
        found = (power.search(block) for power in _POWER)
        rows.append([stamp, *(float(one[1]) if one else math.nan for one in found)])
    if not rows:
        raise UsageError(f"{path} has no block of readings")
    return _readings(np.asarray(rows, np.float64))


def _blocks(text: str) -> list[tuple[float, str]]:
    """Returns the blocks of a raw monitor file, each with its time stamp in milliseconds."""
    if text.count("NEW DATA") > _MOST_BLOCKS:
        raise ValueError(f"it has more than {_MOST_BLOCKS} blocks")
    found = list(_BLOCK.finditer(text))
    edges = [*(one.start() for one in found), len(text)]
    return [(float(int(one[1])), text[one.start() : edges[i + 1]]) for i, one in enumerate(found)]


def _memory(text: str) -> list[tuple[float, int]]:
    """Returns the trainer's memory in bytes, peak or present, by the readings' time."""
    found = []
    for stamp, block in _blocks(text):
        match = next(filter(None, (memory.search(block) for memory in _MEMORY)), None)
        if match is not None:
            found.append((stamp / 1e3, 1024 * int(match[1])))
    return found


def read_performance(path: Path) -> dict[int, tuple[int | None, float | None]]:
    """Reads the authors' own table of memory (bytes) and CPU use (cores) by batch size; empty if there is none."""
    if not path.exists():
        return {}
    found = {}
    for row in csv.DictReader(_text(path).splitlines()):
        batch = _number(row.get("batchsize"))
        mebibytes, percent = _number(row.get("RES")), _number(row.get("cpuUsage_train"))
        if batch is not None:
            found[int(batch)] = (
                None if mebibytes is None else round(mebibytes * (1 << 20)),
                None if percent is None else percent / 100,
            )
    return found


def _number(text: str | None) -> float | None:
    """Parses a number of a table that is not below zero; None if there is none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def read_cores(path: Path) -> list[tuple[float, dict[int, float]]]:
    """Reads seconds of work by core (/proc/stat, man 5 proc) from a raw monitor file, by the readings' time.

    Raises:
        UsageError: It cannot be read.
    """
    return _cores(_text(path))


def _cores(text: str) -> list[tuple[float, dict[int, float]]]:
    found = []
    for stamp, block in _blocks(text):
        ticks = {
            int(cpu): [int(word) for word in words.split()] for cpu, words in _CORE.findall(block)
        }
        worked = {cpu: (sum(t[:3]) + sum(t[5:8])) / _USER_HZ for cpu, t in ticks.items()}
        if worked:
            found.append((stamp / 1e3, worked))
    return sorted(found, key=lambda row: row[0])


def _busy(
    rows: Sequence[tuple[float, Mapping[int, float]]], start: float, end: float
) -> tuple[dict[int, float], float]:
    """Returns the seconds that each core worked in a window, and the seconds between its first and last reading."""
    inside = [row for row in rows if start < row[0] <= end]
    if len(inside) < 2:
        return {}, 0.0
    (begin, first), (last_s, last) = inside[0], inside[-1]
    return {cpu: last.get(cpu, before) - before for cpu, before in first.items()}, last_s - begin


def busy_cores(folder: Path, found: Sequence[TracedRun]) -> tuple[int, ...]:
    """Returns the cores that worked for most of the time in a setting's runs; none if this was not recorded.

    All runs are combined, because the shortest have few readings and their cores do much other work.

    Args:
        folder: The setting's folder.
        found: Its runs.

    Raises:
        RecordError: A file in it is damaged, or exceeds a limit.
    """
    with reading(folder):
        return _busy_cores(folder, found)


def _busy_cores(folder: Path, found: Sequence[TracedRun]) -> tuple[int, ...]:
    seconds = 0.0
    busy: defaultdict[int, float] = defaultdict(float)
    for network in dict.fromkeys(run.network for run in found):
        rows = read_cores(folder / "usage_monitor" / f"usage_monitor_{network}.result")
        for run in (run for run in found if run.network == network):
            worked, lasted = _busy(rows, run.start_s, run.end_s)
            seconds += lasted
            for cpu, own in worked.items():
                busy[cpu] += own
    return tuple(cpu for cpu in sorted(busy) if busy[cpu] > _WORKS * seconds)


def _readings(rows: Floats) -> Readings:
    rows = rows[np.isfinite(rows[:, 0])]
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return Readings(
        rows[:, 0] / 1e3,
        rows[:, 1] * _MICRO,
        rows[:, 2] * _MICRO,
        -rows[:, 3] * _MICRO,
        rows[:, 4] * _MICRO,
    )


def read_stamp(path: Path) -> tuple[float, float]:
    """Reads when training began and ended, in seconds.

    Raises:
        UsageError: The file cannot be read, or lacks one of the times.
    """
    found = {word: int(stamp) / 1e3 for word, stamp in _STAMP.findall(_text(path))}
    if set(found) != {"Begin", "End"}:
        raise UsageError(f"{path} does not say when training began and ended")
    return found["Begin"], found["End"]


def read_steps(path: Path) -> dict[int, float]:
    """Reads seconds of a training step by batch size from the trainer's log; empty if there is none."""
    if not path.exists():
        return {}
    return {int(b): float(ms) / 1e3 for _, ms, b in _LATENCY.findall(_text(path))}


def read_latencies(path: Path) -> dict[int, float]:
    """Reads the authors' own table of seconds of a training step, by batch size.

    Raises:
        UsageError: It cannot be read, or lacks a column.
    """
    try:
        rows = list(csv.DictReader(_text(path).splitlines()))
        return {int(float(row["batchsize"])): float(row["expr_train"]) / 1e3 for row in rows}
    except (KeyError, ValueError, csv.Error) as error:
        raise UsageError(f"{path} is not a table of latencies: {error}") from error


def _text(path: Path) -> str:
    return read_bytes(path, DOCUMENT.bytes).decode("utf-8", errors="replace")
