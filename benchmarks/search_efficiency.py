"""Number of our trials needed to match the best kernel of stock MetaSchedule's 1,000 trials.

The benchmark has six kernels of training steps on this processor, at batch 4. Stock uses its own space, search and
cost model with our workers (common/stock_search.py). Our winner and stock's are then timed in interleaved blocks.
This also relates the times that both searches measured: our best after n trials, scaled by the ratio, is compared
with stock's. The memory that a process gets can change a kernel's time by a tenth, so several processes are
measured. Searches are random: ours is made with three seeds, of which the median counts. Of the six kernels, the
fourth counts, so that a kernel that was never matched is not averaged away.

A search of stock's takes ten minutes on two cores: `--runs DIR` keeps it, and a later call reuses it.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median_high
from typing import Any

import numpy as np
from common import stock_search
from common.bars import QUICK_TRIALS, Report, positive, resampled, run
from common.interleaved import exported, finished_run, interleaved_benchmark, tuning

from autotune.compiler.target.host import cores
from autotune.measurement import median, paired_speedup
from autotune.records import read_run
from autotune.workloads import Kernel, parse_kernel

MOST = 150
"""Trials of our search: the maximum of the bar, since the start of a search depends on its number of trials."""
TRIALS = {"stock": 1000, "ours": MOST}
SEEDS = (1, 2, 3)
BLOCKS = 9
PROCESSES = 5
"""Number of processes that time both winners, each in `BLOCKS` blocks."""
_3X3 = "conv2d:n=4,c=64,h=28,w=28,k=64,r=3,s=3,stride=1,pad=1"
KERNELS = (
    (_3X3, "forward"),
    (_3X3, "data_grad"),
    (_3X3, "weight_grad"),
    ("conv2d:n=4,c=128,h=28,w=28,k=32,r=1,s=1,stride=1,pad=0", "weight_grad"),
    ("conv2d:n=4,c=96,h=28,w=28,k=96,r=3,s=3,stride=1,pad=1,groups=96", "forward"),
    ("matmul:m=64,n=256,k=512", "weight_grad"),
)
QUICK = (("matmul:m=16,n=16,k=16", "forward"),)


def our_run(kernel: Kernel, seed: int, trials: int, runs: Path) -> Path:
    """Returns our run with a seed; makes it if it is missing."""
    logs = runs / "ours" / f"{kernel.name}-seed{seed}"
    found = finished_run(logs, trials)
    if found is None:
        command = [*tuning(kernel, "cpu", trials, logs), "--seed", str(seed)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = finished_run(logs, trials)
        assert found is not None
    return found


def stock_run(kernel: Kernel, trials: int, runs: Path) -> dict[str, Any]:
    """Returns the result of stock's search; makes it if it is missing."""
    folder = runs / "stock" / kernel.name
    reported = stock_search.recorded(folder, trials)
    if reported is None:
        command = stock_search.command(
            __file__, "cpu", kernel, trials, cores(), folder, runs / "stock.lock"
        )
        quiet = subprocess.DEVNULL
        subprocess.run(command, check=True, stdout=quiet, stderr=quiet)
        reported = stock_search.recorded(folder, trials)
        assert reported is not None
    return reported


def trials_until(run_folder: Path, seconds: float) -> int:
    """Returns the trials of a run until its best took at most `seconds`; one more than all if it never did."""
    trials = read_run(run_folder).trials()
    for number, trial in enumerate(trials, start=1):
        if trial["status"] == "ok" and median(trial["samples_s"]) <= seconds:
            return number
    return len(trials) + 1


def interleaved_processes(
    kernel: Kernel, sides: Mapping[str, tuple[Path, str]], *, quick: bool
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Returns each side's seconds in interleaved blocks of several processes, and its largest error."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    errors = dict.fromkeys(sides, 0.0)
    for _ in range(1 if quick else PROCESSES):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            seen, wrong = pool.submit(
                interleaved_benchmark, kernel, sides, 3 if quick else BLOCKS
            ).result()
        for side in sides:
            times[side] += seen[side]
            errors[side] = max(errors[side], wrong[side])
    return times, errors


def compare(
    report: Report, kernel: Kernel, seed: int, mine: Path, stock: dict[str, Any], runs: Path
) -> int:
    """Returns the trials of one of our runs until stock's best is matched."""
    with tempfile.TemporaryDirectory() as out:
        sides = {
            "stock": (runs / "stock" / kernel.name / "stock.so", "main"),
            "ours": (exported(mine, Path(out)), kernel.name),
        }
        times, errors = interleaved_processes(kernel, sides, quick=report.quick)
    speed = paired_speedup(times["stock"], times["ours"], seed=1)
    (task,) = (read_run(mine).result or {})["tasks"]
    # Relates our winner's time in the search to stock's interleaved time. An untuned winner matches nothing.
    won = [one for one in read_run(mine).trials() if one["digest"] == task["digest"]]
    seen = min((median(one["samples_s"]) for one in won), default=0.0)
    needed = trials_until(mine, seen * speed.estimate)
    report.row(
        what="kernel", kernel=kernel.name, seed=seed, stock_ms=1e3 * median(times["stock"]),
        ours_ms=1e3 * median(times["ours"]), speedup=speed.estimate,
        interval=[speed.low, speed.high], errors=errors, needed=needed, trials=task["trials"],
        stock_measured=stock["measured"], stock_right=stock["right"], stock_wall_s=stock["wall_s"],
        stock_best_after=stock["best_after"], formulation=task["formulation"],
    )  # fmt: skip
    print(
        f"{kernel.name}, seed {seed}: ours {1e3 * median(times['ours']):.4g} ms, stock "
        f"{1e3 * median(times['stock']):.4g} ms = {speed.estimate:.3g}x "
        f"({speed.low:.3g}-{speed.high:.3g}); "
        + (
            f"matched after {needed} of {task['trials']} trials"
            if needed <= task["trials"]
            else "not matched"
        ),
        flush=True,
    )
    return needed


def measure(report: Report) -> None:
    minutes = report.options.minutes
    until = time.monotonic() + 60 * minutes if minutes is not None else math.inf
    needed: list[int] = []
    trials = dict.fromkeys(TRIALS, QUICK_TRIALS) if report.quick else TRIALS
    with tempfile.TemporaryDirectory() as temporary:
        runs = report.options.runs or Path(temporary)
        for spec, role in QUICK if report.quick else KERNELS:
            if time.monotonic() > until:
                print(f"time is over: {len(needed)} of {len(KERNELS)} kernels are compared")
                break
            kernel = parse_kernel(spec, role)
            stock = stock_run(kernel, trials["stock"], runs)
            if stock["best_s"] is None:
                report.row(what="kernel", kernel=kernel.name, note="stock found no valid kernel")
                print(f"{kernel.name}: stock found no valid kernel; it is not compared")
                continue
            seeds = SEEDS[:1] if report.quick else SEEDS
            made = [(seed, our_run(kernel, seed, trials["ours"], runs)) for seed in seeds]
            needed.append(median_high(compare(report, kernel, *one, stock, runs) for one in made))
            print(f"{kernel.name}: {needed[-1]} trials, median of {len(seeds)}", flush=True)
    missing = 0 if report.quick else len(KERNELS) - len(needed)
    report.bar("kernels not compared", missing, "at most", 0, "kernels")
    if not needed:
        return
    median, ends = resampled(_upper_median, needed)
    report.bar(
        f"our trials until stock's best of 1,000 is matched, upper median of {len(needed)} kernels",
        median, "at most", MOST, "trials", interval=ends,
    )  # fmt: skip


def _upper_median(values: Any, axis: int) -> Any:
    return np.quantile(values, 0.5, axis=axis, method="higher")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the searches here")
    parser.add_argument(
        "--minutes", type=positive(float), help="begin no search after so many minutes"
    )


if __name__ == "__main__":
    if not stock_search.child():
        sys.exit(run(__doc__ or "", measure, add_options))
