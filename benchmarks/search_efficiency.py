"""How many of our trials it takes to match the best kernel of stock MetaSchedule's 1,000.

Six kernels of training steps on this processor, batch 4. Stock has its own space, search and cost model and our
workers (stock_search.py). Our winner and stock's are then timed in interleaved blocks, which also relates the times
that both searches saw: our best after so many trials, scaled so, is compared with stock's.

A search of stock's takes ten minutes on two cores: `--runs DIR` keeps it, and a later call takes up what is there.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median as middle
from typing import Any

import stock_search
from bars import Report, run
from duel import duel, exported, finished_run, tuning

from autotune.compiler.host import cores
from autotune.measurement import median, paired_speedup
from autotune.records import read_run
from autotune.workloads import Kernel, parse_kernel

MOST = 150
"""Trials that ours has: the most that the bar allows, since how a search begins depends on how many it has."""
TRIALS = {"stock": 1000, "ours": MOST}
QUICK_TRIALS = 8
BLOCKS = 31
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


def searched(kernel: Kernel, runs: Path, *, quick: bool) -> tuple[Path, dict[str, Any]]:
    """Our run, and what stock's search came to; both are made where they are missing."""
    trials = dict.fromkeys(TRIALS, QUICK_TRIALS) if quick else TRIALS
    logs = runs / "ours" / kernel.name
    mine = finished_run(logs, trials["ours"])
    if mine is None:
        command = tuning(kernel, "cpu", trials["ours"], logs)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        mine = finished_run(logs, trials["ours"])
        assert mine is not None
    stock = runs / "stock" / kernel.name
    told = stock_search.told(stock, trials["stock"])
    if told is None:
        subprocess.run(
            stock_search.command(
                __file__, "cpu", kernel, trials["stock"], cores(), stock, runs / "stock.lock"
            ),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        told = stock_search.told(stock, trials["stock"])
        assert told is not None
    return mine, told


def trials_until(run_folder: Path, seconds: float) -> int:
    """Trials of a run until its best was at most so many seconds; one more than all where it never was."""
    trials = read_run(run_folder).trials()
    for number, trial in enumerate(trials, start=1):
        if trial["status"] == "ok" and median(trial["samples_s"]) <= seconds:
            return number
    return len(trials) + 1


def compare(report: Report, kernel: Kernel, mine: Path, stock: dict[str, Any], runs: Path) -> int:
    """Our trials until stock's best is matched."""
    with tempfile.TemporaryDirectory() as out:
        sides = {
            "stock": (runs / "stock" / kernel.name / "stock.so", "main"),
            "ours": (exported(mine, Path(out)), kernel.name),
        }
        times, errors = duel(kernel, sides, 3 if report.quick else BLOCKS)
    speed = paired_speedup(times["stock"], times["ours"], seed=1)
    (task,) = (read_run(mine).result or {})["tasks"]
    # What the search saw of our winner, against what the duel saw of stock's. An untuned winner matches nothing.
    won = [one for one in read_run(mine).trials() if one["digest"] == task["digest"]]
    seen = min((median(one["samples_s"]) for one in won), default=0.0)
    needed = trials_until(mine, seen * speed.estimate)
    report.row(
        what="kernel", kernel=kernel.name, stock_ms=1e3 * median(times["stock"]),
        ours_ms=1e3 * median(times["ours"]), speedup=speed.estimate,
        interval=[speed.low, speed.high], errors=errors, needed=needed, trials=task["trials"],
        stock_measured=stock["measured"], stock_right=stock["right"], stock_wall_s=stock["wall_s"],
        stock_best_after=stock["best_after"], formulation=task["formulation"],
    )  # fmt: skip
    print(
        f"{kernel.name}: ours {1e3 * median(times['ours']):.4g} ms, stock "
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
    until = time.monotonic() + 60 * minutes if minutes else math.inf
    needed: list[int] = []
    with tempfile.TemporaryDirectory() as temporary:
        runs = report.options.runs or Path(temporary)
        for spec, role in QUICK if report.quick else KERNELS:
            if time.monotonic() > until:
                print(f"time is over: {len(needed)} of {len(KERNELS)} kernels are compared")
                break
            kernel = parse_kernel(spec, role)
            mine, stock = searched(kernel, runs, quick=report.quick)
            if stock["best_s"] is None:
                report.row(what="kernel", kernel=kernel.name, note="stock found no valid kernel")
                print(f"{kernel.name}: stock found no valid kernel; it is not compared")
                continue
            needed.append(compare(report, kernel, mine, stock, runs))
    missing = 0 if report.quick else len(KERNELS) - len(needed)
    report.bar("kernels not compared", missing, "at most", 0, "kernels")
    if not needed:
        return
    report.bar(
        "our trials until stock's best of 1,000 is matched, median",
        middle(needed), "at most", MOST, "trials",
    )  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the searches here")
    parser.add_argument("--minutes", type=float, help="begin no search after so many minutes")


if __name__ == "__main__":
    if not stock_search.child():
        sys.exit(run(__doc__ or "", measure, add_options))
