"""Comparisons of two settings on a noisy, throttling device, and import of the raw traces published with EMDL'21.

A comparison of equal settings that names a winner is wrong; a true difference of 3 % should be found. Each step has
5 % of noise (multiplicative, log-normal), and a block is the median of five steps, as on a device. The device is an
emulated Meizu 16T that is never allowed to cool, so that its clocks fall during the comparison. The traces are not
part of this repository: `--traces FOLDER` gives their location.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common.bars import Report, run

from autotune.emulator.model.clock import VirtualClock
from autotune.emulator.model.profile import load
from autotune.emulator.model.soc import Soc
from autotune.emulator.model.step_model import ALEXNET_B16
from autotune.emulator.model.trained import scaled
from autotune.measurement.verdicts import Verdict, versus
from autotune.power import meizu_traces

TRACES = Path(__file__).parents[2] / "shared" / "data" / "meizu_traces"
NOISE = 0.05
STEPS = 5
DIFFERENCE = 1.03
PROFILE = "meizu-16t"
CPUS = (4, 5, 6, 7)


def compared(job: tuple[int, float]) -> tuple[Verdict, bool]:
    """Compares a setting with one that takes `factor` times as long; returns the verdict and if clocks fell."""
    seed, factor = job
    rng = np.random.default_rng(seed)
    soc = Soc(load(PROFILE), VirtualClock())
    throttled = False

    def block(times: float) -> Callable[[], float]:
        work = scaled(ALEXNET_B16, times)

        def measure() -> float:
            nonlocal throttled
            done = soc.run(work, CPUS, steps=STEPS)
            throttled = throttled or soc.throttle_level() > 0
            return float(np.median(done.busy_s / STEPS * np.exp(rng.normal(0.0, NOISE, STEPS))))

        return measure

    return versus(block(1.0), block(factor), seed=seed), throttled


def verdicts(report: Report, pool: ProcessPoolExecutor) -> None:
    """Compares equal settings, and settings that differ."""
    count = 20 if report.quick else report.options.comparisons
    for name, factor in (("equal", 1.0), ("different", DIFFERENCE)):
        found = list(pool.map(compared, [(s, factor) for s in range(count)], chunksize=10))
        winners = [verdict.winner for verdict, _ in found]
        blocks = [verdict.blocks for verdict, _ in found]
        report.row(
            settings=name, factor=factor, comparisons=count, noise=NOISE, emulated=PROFILE,
            winners={w: winners.count(w) for w in ("first", "second", "tie")},
            blocks_median=float(np.median(blocks)), throttled=sum(t for _, t in found),
        )  # fmt: skip
        print(report.rows[-1], flush=True)
        if name == "equal":
            wrong = 100 * sum(w != "tie" for w in winners) / count
            report.bar(
                f"of {count} comparisons of equals, a winner named", wrong, "at most", 5, "%"
            )
        else:
            right = 100 * winners.count("first") / count
            report.bar("a true difference of 3 % found", right, "at least", 90, "%")


def published_joules(path: Path, start_s: float, end_s: float) -> float:
    """Returns the USB energy of a window in joules, by a plain sum over the published table.

    The power of a sample holds since the previous sample. The power of the last one also holds for the rest of the
    window.
    """
    joules, before, last = 0.0, start_s, math.nan
    with path.open(newline="") as file:
        rows = sorted(
            (float(row["stamp"]) / 1e3, float(row["usb_current"]) * float(row["usb_voltage"]))
            for row in csv.DictReader(file)
        )
    for time_s, picowatts in rows:
        if start_s < time_s <= end_s:
            last = picowatts * 1e-12
            joules += last * (time_s - before)
            before = time_s
    return joules + last * (end_s - before)


def published_duration_s(path: Path) -> float:
    """Returns the seconds of training by the published time stamps."""
    stamps = dict(line.split(":") for line in path.read_text().splitlines() if ":" in line)
    ends = {name.split()[0]: float(at) for name, at in stamps.items() if "train" in name}
    return (ends["End"] - ends["Begin"]) / 1e3


def traces(report: Report) -> None:
    """Compares the importer's results with the published time stamps, samples and latency tables."""
    root: Path = report.options.traces
    if not root.is_dir():
        print(f"the published traces are not at {root}: left out")
        return
    worst_time = worst_step = worst_energy = 0.0
    runs = flagged = 0
    for setting in sorted(path for path in root.iterdir() if path.is_dir()):
        for one in meizu_traces.runs(setting):
            folder = setting / "processed_data" / one.network
            samples = folder / f"processed_data_{one.network}.csv"
            stamps = setting / "train_stamp" / one.network / f"train_stamp_{one.batch}.result"
            joules = published_joules(samples, one.start_s, one.end_s)
            if one.usb_j is not None:
                worst_energy = max(worst_energy, abs(one.usb_j / joules - 1))
            duration_s = published_duration_s(stamps)
            worst_time = max(worst_time, abs(one.duration_s / duration_s - 1))
            table = meizu_traces.read_latencies(folder / f"time_table_{one.network}.csv")
            if one.step_s is not None and one.batch in table:
                worst_step = max(worst_step, abs(one.step_s / table[one.batch] - 1))
            runs += 1
            flagged += bool(one.saturated)
            report.row(
                setting=setting.name, network=one.network, batch=one.batch,
                duration_s=one.duration_s, published_duration_s=duration_s, step_s=one.step_s,
                usb_j=one.usb_j, published_usb_j=joules, total_j=one.total_j, saturated=one.saturated,
            )  # fmt: skip
    print(f"{runs} runs, {flagged} saturated")
    report.bar("traces: a run's duration off its stamps", 100 * worst_time, "at most", 1, "%")
    report.bar(
        "traces: a step's duration off the published one", 100 * worst_step, "at most", 1, "%"
    )
    report.bar(
        "traces: USB energy off the published samples'", 100 * worst_energy, "at most", 1, "%"
    )
    report.bar("traces: runs flagged as saturated", flagged, "at least", 1, f"of {runs}")


def measure(report: Report) -> None:
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        verdicts(report, pool)
    traces(report)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--comparisons", type=int, default=1000, help="of each kind")
    parser.add_argument("--traces", type=Path, default=TRACES, help="the published raw traces")


if __name__ == "__main__":
    raise SystemExit(run(__doc__ or "", measure, options))
