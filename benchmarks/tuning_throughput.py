"""Trials a minute, and the best kernel, against stock MetaSchedule at the same number of trials.

Stock is `tune_tir` with its default LocalBuilder, LocalRunner, space and search; both sides tune the same operator
for this CPU, each in a process of its own, one after the other. The two winners are then timed against each other
in interleaved blocks, in one process.

The time of our side runs from the start of the command to its last trial: imports, start of the workers and the
untuned default included. Only the last timing is left out, which stock has no counterpart of; `whole_s` has it.
The time of stock is that of the call of `tune_tir`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bars import Report, run

from autotune.measurement import paired_speedup
from autotune.records import read_run

SPECS = {
    "LeNet's first fully connected layer": "matmul:m=4,n=120,k=400",
    "LeNet's second convolution": "conv2d:n=4,c=6,h=14,w=14,k=16,r=5,s=5,stride=1,pad=0",
    "a larger convolution": "conv2d:n=4,c=32,h=28,w=28,k=32,r=3,s=3,stride=1,pad=1",
}
TRIALS = 128


def stock(spec: str, trials: int, folder: Path) -> None:
    """Child process: tunes with `tune_tir` as it comes, and builds its best program."""
    import tvm
    from tvm.s_tir import meta_schedule

    from autotune.compiler import targets
    from autotune.compiler.formulations import formulations, prim_func
    from autotune.workloads import Kernel, parse_operator

    kernel = Kernel(parse_operator(spec), "forward")
    program = prim_func(kernel, formulations(kernel, ["direct"])[0])
    target = targets.tvm_target(targets.find("cpu"), None)
    began = time.monotonic()
    database = meta_schedule.tune_tir(
        program, target, str(folder / "stock"), max_trials_global=trials
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
    subprocess.run(
        [*command, "export", str(logs), "--out", str(folder / "ours")],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {
        "wall_s": wall_s,
        "whole_s": whole_s,
        "trials": result["trials"],
        "symbol": result["tasks"][0]["name"],
    }


def duel(
    spec: str, folder: Path, symbol: str, blocks: int
) -> tuple[list[float], list[float], dict[str, float]]:
    """Times both winners in interleaved blocks; seconds of stock and ours, and both errors."""
    import numpy as np
    import tvm

    from autotune.workloads import (
        Kernel,
        max_relative_error,
        parse_operator,
        random_inputs,
        reference,
    )

    kernel = Kernel(parse_operator(spec), "forward")
    inputs = random_inputs(kernel, 1)
    (expected,) = reference(kernel, inputs)
    device = tvm.cpu()
    arguments = [tvm.runtime.tensor(array, device=device) for array in inputs]
    arguments.append(tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"), device=device))
    sides = {
        "stock": tvm.runtime.load_module(str(folder / "stock.so")),
        "ours": tvm.runtime.load_module(str(folder / "ours" / "kernels.so")),
    }
    names = {"stock": "main", "ours": symbol}
    errors, times = {}, {"stock": [], "ours": []}
    for side, library in sides.items():
        library[names[side]](*arguments)
        errors[side] = max_relative_error(arguments[-1].numpy(), expected)
    order = np.random.default_rng(1)
    for _ in range(blocks):
        for side in order.permutation(["stock", "ours"]):
            timer = sides[side].time_evaluator(names[side], device, number=20, repeat=1)
            times[side].append(float(timer(*arguments).results[0]))
    return times["stock"], times["ours"], errors


def measure(report: Report) -> None:
    for name, spec in SPECS.items():
        with tempfile.TemporaryDirectory() as folder:
            compare(report, name, spec, Path(folder))


def compare(report: Report, name: str, spec: str, folder: Path) -> None:
    """Both sides on one operator."""
    trials = 8 if report.quick else TRIALS
    mine = ours(spec, trials, folder)
    if report.quick:
        report.row(operator=spec, side="ours", **mine)
        return
    subprocess.run(
        [sys.executable, __file__, "--stock", spec, str(trials), str(folder)], check=True
    )
    theirs = json.loads((folder / "stock.json").read_text())
    rates = {
        side: 60 * it["trials"] / it["wall_s"] for side, it in (("ours", mine), ("stock", theirs))
    }
    report.row(operator=spec, side="stock", trials_per_min=rates["stock"], **theirs)
    report.row(operator=spec, side="ours", trials_per_min=rates["ours"], **mine)
    ratio = rates["ours"] / rates["stock"]
    report.bar(f"{name}: trials a minute, ours / stock", ratio, "at least", 8, "x")
    if not theirs["built"]:
        report.row(operator=spec, note="stock found no valid kernel")
        return
    stock_s, ours_s, errors = duel(spec, folder, mine["symbol"], 31)
    speed = paired_speedup(ours_s, stock_s, seed=1)
    report.row(operator=spec, ratio=speed.estimate, low=speed.low, high=speed.high, errors=errors)
    report.bar(f"{name}: best kernel's time, ours / stock", speed.estimate, "at most", 1.05, "x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stock"]:
        stock(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        sys.exit(0)
    sys.exit(run(__doc__ or "", measure))
