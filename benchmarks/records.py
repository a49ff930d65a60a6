"""Number of trials that shipped records save: SqueezeNet 1.0 with the records of SqueezeNet 1.1.

For each seed, SqueezeNet 1.1 is tuned with N trials, and SqueezeNet 1.0 with N trials and no records. The latter
reaches the step time T. Then SqueezeNet 1.0 is tuned with the records of 1.1 and N/2 trials; the result is the
number of trials after which a step takes at most T. A step's time is the sum of count x best time so far, including
the untuned default.

By default the times come from the model of a phone (`--emulate`): no other load disturbs it, and its noise (2 %) is
the same for all. `--host` measures on this processor instead. `--runs DIR` keeps the runs and resumes from them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.bars import Report, run

from autotune.compiler.target.request import TuneRequest
from autotune.measurement import median
from autotune.records import read_run
from autotune.records.folder import Run

FIRST, SECOND = "squeezenet1_1", "squeezenet1_0"
QUICK = "lenet"


def tuned(logs: Path, words: Sequence[str]) -> Run:
    """Returns a finished run of `autotune kernels`: the existing one, or a new one."""
    if not list(logs.glob("*/result.json")):
        subprocess.run(
            [sys.executable, "-m", "autotune", "kernels", *words, "--logs", str(logs), "--json"],
            stdout=subprocess.DEVNULL,
            check=True,
        )
    (result,) = logs.glob("*/result.json")
    return read_run(result.parent)


def curve(found: Run) -> list[float]:
    """Returns the milliseconds of a step after each number of trials, from 0 on."""
    request = TuneRequest.from_json(found.about["request"])
    count = {task.kernel.name: task.count for task in request.tasks}
    best: dict[str, float] = {}
    falling: list[float] = []
    for event in found.events:
        if event["event"] not in ("default", "trial"):
            continue
        if event["event"] == "trial" and not falling:
            falling.append(step_ms(count, best))
        if event["status"] == "ok":
            seconds = median(event["samples_s"])
            best[event["task"]] = min(seconds, best.get(event["task"], seconds))
        if event["event"] == "trial":
            falling.append(step_ms(count, best))
    return falling


def step_ms(count: dict[str, int], best: dict[str, float]) -> float:
    """Returns a step's milliseconds; infinity while a kernel has no time."""
    return 1e3 * sum(n * best.get(name, float("inf")) for name, n in count.items())


def compared(report: Report, seed: int, trials: int, logs: Path) -> float:
    """Returns the trials with records until the step time without records is reached, over the trials without."""
    options = report.options
    first, second = (QUICK, QUICK) if report.quick else (FIRST, SECOND)
    batches = (4, 8) if report.quick else (options.batch, options.batch)
    where = ("--target", "cpu") if options.host else ("--emulate", options.emulate)

    def words(model: str, batch: int, budget: int) -> list[str]:
        named = ("--model", model, "--batch", str(batch), "--seed", str(seed))
        return [*named, *where, "--trials", str(budget)]

    known = tuned(logs / "first", words(first, batches[0], trials))
    without = tuned(logs / "without", words(second, batches[1], trials))
    given = [*words(second, batches[1], trials // 2), "--records", str(known.path)]
    with_records = tuned(logs / "with", given)
    cold, warm = curve(without), curve(with_records)
    reached = next((n for n, ms in enumerate(warm) if ms <= cold[-1]), None)
    cold_result, warm_result = result_of(without), result_of(with_records)
    report.row(
        seed=seed,
        trials=trials,
        batch=batches[1],
        step_ms_without=cold[-1],
        reached_after=reached,
        step_ms_with_half=warm[-1],
        last_timing_ms={"without": cold_result["step_ms"], "with_half": warm_result["step_ms"]},
        records=warm_result["records"],
        wall_s={"first": result_of(known)["wall_s"], "without": cold_result["wall_s"],
                "with": warm_result["wall_s"]},
        curve_without=cold,
        curve_with=warm,
    )  # fmt: skip
    print(
        f"seed {seed}: {cold[-1]:.4g} ms a step after {trials} trials without records; with them after "
        f"{'more than ' + str(trials // 2) if reached is None else reached}, and {warm[-1]:.4g} ms after "
        f"{trials // 2} (final benchmark: {cold_result['step_ms']['tuned']:.4g} and "
        f"{warm_result['step_ms']['tuned']:.4g} ms); {warm_result['records']}",
        flush=True,
    )
    return (trials // 2 + 1 if reached is None else reached) / trials


def result_of(found: Run) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((found.path / "result.json").read_text(encoding="utf-8"))
    return result


def measure(report: Report) -> None:
    seeds = 1 if report.quick else report.options.seeds
    trials = 24 if report.quick else report.options.trials
    with tempfile.TemporaryDirectory() as folder:
        logs = report.options.runs or Path(folder)
        ratios = [
            compared(report, seed, trials, logs / f"seed-{seed}") for seed in range(1, seeds + 1)
        ]
    place = "this host" if report.options.host else f"emulated {report.options.emulate}"
    print(
        f"ratios: {', '.join(f'{ratio:.3f}' for ratio in ratios)}; median {statistics.median(ratios):.3f}"
    )
    what = f"{QUICK}, batch 8 after 4" if report.quick else f"{SECOND} after {FIRST}"
    report.bar(
        f"{what}, {place}, {trials} trials: with records over without, worst of {seeds} seeds",
        max(ratios),
        "at most",
        0.5,
        "",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=400, help="N [400]")
    parser.add_argument("--seeds", type=int, default=3, help="seeds [3]")
    parser.add_argument("--batch", type=int, default=4, help="batch [4]")
    parser.add_argument("--emulate", default="meizu-16t", metavar="PROFILE", help="[meizu-16t]")
    parser.add_argument("--host", action="store_true", help="measure on this processor")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="take runs from there, and keep")


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
