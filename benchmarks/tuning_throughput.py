"""Trials per minute and the best kernel, compared with stock MetaSchedule at the same number of trials.

Both figures are geometric means over three operators; the rows contain each operator's figures.

Stock is `tune_tir` with its default LocalBuilder, LocalRunner, space and search. Its measurements take at least as
long as ours (its own default is 25 times that). Both sides tune the same operator for this CPU, each in its own
process, one after the other. The two winners are then timed against each other in interleaved blocks, in one
process.

Our time runs from the start of the command to its last trial. It includes imports, the start of the workers and the
untuned default. Only the final benchmark is excluded, since stock has no counterpart; `whole_s` includes it.
Stock's time is that of the call of `tune_tir`.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from common.bars import QUICK_TRIALS, Report, mean_ratio, run
from common.interleaved import exported, interleaved_benchmark

from autotune.measurement import Interval, median, paired_speedup
from autotune.records import read_run
from autotune.workloads import Kernel, parse_operator

# LeNet's first fully connected layer and its second convolution, and a larger convolution. The matmul has 32 rows:
# with 4, our whole space for it has fewer than 128 schedules, and a search that ends early has no rate.
SPECS = (
    "matmul:m=32,n=120,k=400",
    "conv2d:n=4,c=6,h=14,w=14,k=16,r=5,s=5,stride=1,pad=0",
    "conv2d:n=4,c=32,h=28,w=28,k=32,r=3,s=3,stride=1,pad=1",
)
TRIALS = 128


def stock(spec: str, trials: int, folder: Path) -> None:
    """Child process: tunes with `tune_tir` and its defaults, and builds the best program."""
    import tvm
    from tvm.s_tir import meta_schedule
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner

    from autotune.compiler.formulations import formulations, prim_func
    from autotune.compiler.target import spaces, targets

    kernel = Kernel(parse_operator(spec), "forward")
    program = prim_func(kernel, formulations(kernel, ["direct"])[0])
    target = targets.tvm_target(targets.find("cpu"), None)
    began = time.monotonic()
    # The same number of samples as our side, with the same minimum time; all else is default.
    measure = spaces.load(targets.find("cpu").space_path()).measure
    evaluator = EvaluatorConfig(
        number=1, repeat=measure.repeats, min_repeat_ms=math.ceil(measure.min_repeat_ms)
    )
    database = meta_schedule.tune_tir(
        program,
        target,
        str(folder / "stock"),
        max_trials_global=trials,
        runner=LocalRunner(evaluator_config=evaluator),
    )
    wall_s = time.monotonic() - began
    schedule = meta_schedule.tir_integration.compile_tir(database, program, target)
    built = schedule is not None
    if built:
        tvm.compile(schedule.mod, target).export_library(str(folder / "stock.so"))
    records = (folder / "stock" / "database_tuning_record.json").read_text().splitlines()
    answer = {"wall_s": wall_s, "trials": len(records), "built": built}
    (folder / "stock.json").write_text(json.dumps(answer))


def ours(spec: str, trials: int, folder: Path) -> dict[str, Any]:
    """Tunes with `autotune kernels` and exports the winner."""
    command = [sys.executable, "-m", "autotune"]
    began, started = time.monotonic(), time.time()
    done = subprocess.run(
        [
            *(*command, "kernels", "--target", "cpu", "--op", spec, "--role", "forward"),
            *("--trials", str(trials), "--logs", str(folder / "logs"), "--json"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    whole_s = time.monotonic() - began
    result = json.loads(done.stdout)
    (logs,) = (folder / "logs").iterdir()
    wall_s = read_run(logs).trials()[-1]["time"] - started
    return {
        "wall_s": wall_s,
        "whole_s": whole_s,
        "trials": result["trials"],
        "library": str(exported(logs, folder / "ours")),
    }


def measure(report: Report) -> None:
    rates: list[float] = []
    times: list[Interval] = []
    for spec in SPECS[:1] if report.quick else SPECS:
        with tempfile.TemporaryDirectory() as folder:
            compared = compare(report, spec, Path(folder))
        if compared is not None:
            rates.append(compared[0])
            times.append(compared[1])
    if rates:
        report.bar("trials a minute, ours / stock", geometric_mean(rates), "at least", 8, "x")
        mean, ends = mean_ratio(times)
        report.bar("best kernel's time, ours / stock", mean, "at most", 1.05, "x", interval=ends)


def compare(report: Report, spec: str, folder: Path) -> tuple[float, Interval] | None:
    """Compares both sides on one operator; returns the ratios of trials per minute and of the winners' times."""
    trials = QUICK_TRIALS if report.quick else TRIALS
    mine = ours(spec, trials, folder)
    if report.quick:
        report.row(operator=spec, side="ours", **mine)
        return None
    subprocess.run(
        [sys.executable, __file__, "--stock", spec, str(trials), str(folder)], check=True
    )
    theirs = json.loads((folder / "stock.json").read_text())
    rates = {
        side: 60 * it["trials"] / it["wall_s"] for side, it in (("ours", mine), ("stock", theirs))
    }
    report.row(operator=spec, side="stock", trials_per_min=rates["stock"], **theirs)
    report.row(operator=spec, side="ours", trials_per_min=rates["ours"], **mine)
    rate = rates["ours"] / rates["stock"]
    report.row(operator=spec, trials_per_min_ratio=rate)
    if not theirs["built"]:
        report.row(operator=spec, note="stock found no valid kernel")
        return None
    kernel = Kernel(parse_operator(spec), "forward")
    times, errors = interleaved_benchmark(
        kernel,
        {"stock": (folder / "stock.so", "main"), "ours": (Path(mine["library"]), kernel.name)},
        blocks=31,
    )
    stock_s, ours_s = times["stock"], times["ours"]
    speed = paired_speedup(ours_s, stock_s, seed=1)
    report.row(
        operator=spec,
        stock_ms=1e3 * median(stock_s),
        ours_ms=1e3 * median(ours_s),
        time_ratio=speed.estimate,
        interval=[speed.low, speed.high],
        errors=errors,
    )
    return rate, speed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stock"]:
        stock(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        sys.exit(0)
    sys.exit(run(__doc__ or "", measure))
