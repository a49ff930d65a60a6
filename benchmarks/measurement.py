"""Verdicts on two settings of a noisy, throttling device, and the raw traces published with EMDL'21.

A comparison of equals that names a winner is wrong; a true difference of 3 % is to be found. The device is an
emulated Meizu 16T that is never let cool, so that its clocks fall while it is compared. The traces are not part of
this repository: `--traces FOLDER` says where they are.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bars import Report, run

from autotune.emulator.clock import VirtualClock
from autotune.emulator.profile import load
from autotune.emulator.soc import Soc
from autotune.emulator.step_model import ALEXNET_B16
from autotune.emulator.trained import scaled
from autotune.measurement.versus import Verdict, versus
from autotune.power import meizu_traces
from autotune.power.trace import net_energy

TRACES = Path(__file__).parents[2] / "shared" / "data" / "meizu_traces"
NOISE = 0.05
STEPS = 5
DIFFERENCE = 1.03
PROFILE = "meizu-16t"
CPUS = (4, 5, 6, 7)


def compared(job: tuple[int, float]) -> tuple[Verdict, bool]:
    """A comparison of a setting with one that takes `factor` times as long; and whether clocks fell meanwhile."""
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
    """Comparisons of equal settings, and of such as differ."""
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


def traces(report: Report) -> None:
    """The importer against what the authors made of the same samples."""
    root: Path = report.options.traces
    if not root.is_dir():
        print(f"the published traces are not at {root}: left out")
        return
    worst_time = worst_energy = 0.0
    runs = flagged = 0
    for setting in sorted(path for path in root.iterdir() if path.is_dir()):
        for one in meizu_traces.runs(setting):
            folder = setting / "processed_data" / one.network
            theirs = meizu_traces.read_processed(folder / f"processed_data_{one.network}.csv")
            energy = net_energy(theirs.usb(), one.start_s, one.end_s, meizu_traces.NONE)
            inside = theirs.usb().between(one.start_s, one.end_s).times_s
            worst_energy = max(worst_energy, abs(one.usb_j / energy.joules - 1))
            table = meizu_traces.read_latencies(folder / f"time_table_{one.network}.csv")
            if one.step_s is not None and one.batch in table:
                worst_time = max(worst_time, abs(one.step_s / table[one.batch] - 1))
            runs += 1
            flagged += bool(one.saturated)
            report.row(
                setting=setting.name, network=one.network, batch=one.batch, samples=len(inside),
                duration_s=one.duration_s, step_s=one.step_s, usb_j=one.usb_j, total_j=one.total_j,
                published_usb_j=energy.joules, saturated=one.saturated,
            )  # fmt: skip
    print(f"{runs} runs, {flagged} saturated")
    report.bar(
        "traces: a step's duration off the published one", 100 * worst_time, "at most", 1, "%"
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
