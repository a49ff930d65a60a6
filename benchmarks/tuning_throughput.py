"""Trials a minute, and the best kernel, against stock MetaSchedule at the same number of trials.

Stock is `tune_tir` with its default LocalBuilder, LocalRunner, space and search; both sides tune the same operator
for this CPU, each in a process of its own, one after the other. The two winners are then timed against each other
in interleaved blocks, in one process.
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

SPEC = "conv2d:n=4,c=32,h=28,w=28,k=32,r=3,s=3,stride=1,pad=1"
TRIALS = 64


def stock(trials: int, folder: Path) -> None:
    """Child process: tunes with `tune_tir` as it comes, and builds its best program."""
    import tvm
    from tvm.s_tir import meta_schedule

    from autotune.compiler import targets
    from autotune.compiler.formulations import formulations, prim_func
    from autotune.workloads import Kernel, parse_operator

    kernel = Kernel(parse_operator(SPEC), "forward")
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


def ours(trials: int, folder: Path) -> dict[str, Any]:
    """Tunes with `autotune kernels` and exports the winner; the seconds include process start."""
    command = [sys.executable, "-m", "autotune"]
    began = time.monotonic()
    done = subprocess.run(
        [
            *(*command, "kernels", "--target", "cpu", "--op", SPEC, "--role", "forward"),
            *("--trials", str(trials), "--logs", str(folder / "logs"), "--json"),
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    wall_s = time.monotonic() - began
    result = json.loads(done.stdout)
    (logs,) = (folder / "logs").iterdir()
    subprocess.run(
        [*command, "export", str(logs), "--out", str(folder / "ours")],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return {"wall_s": wall_s, "trials": result["trials"], "symbol": result["tasks"][0]["name"]}


def duel(
    folder: Path, symbol: str, blocks: int
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

    kernel = Kernel(parse_operator(SPEC), "forward")
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
    trials = 8 if report.quick else TRIALS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mine = ours(trials, folder)
        if report.quick:
            report.row(side="ours", **mine)
            return
        subprocess.run([sys.executable, __file__, "--stock", str(trials), name], check=True)
        theirs = json.loads((folder / "stock.json").read_text())
        rates = {
            side: 60 * it["trials"] / it["wall_s"]
            for side, it in (("ours", mine), ("stock", theirs))
        }
        report.row(side="stock", trials_per_min=rates["stock"], **theirs)
        report.row(side="ours", trials_per_min=rates["ours"], **mine)
        report.bar(
            "trials a minute, ours / stock", rates["ours"] / rates["stock"], "at least", 8, "x"
        )
        if not theirs["built"]:
            report.row(note="stock found no valid kernel")
            return
        stock_s, ours_s, errors = duel(folder, mine["symbol"], 31)
        ratio = paired_speedup(ours_s, stock_s, seed=1)
        report.row(ratio=ratio.estimate, low=ratio.low, high=ratio.high, max_rel_errors=errors)
        report.bar("best kernel's time, ours / stock", ratio.estimate, "at most", 1.05, "x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stock"]:
        stock(int(sys.argv[2]), Path(sys.argv[3]))
        sys.exit(0)
    sys.exit(run(__doc__ or "", measure))
