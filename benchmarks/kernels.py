"""LeNet's training kernels, tuned for this CPU and for Adreno (with this machine's OpenCL device as a stand-in).

Runs `autotune kernels` as a user would. Judges the correctness of the results, the speed-up over the untuned
default schedule, and the time that tuning took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from common.bars import QUICK_TRIALS, Report, mean_ratio, run

from autotune.measurement import Interval
from autotune.records import Result

COMPUTE = ("conv2d", "matmul")


LENET = ("--model", "lenet", "--batch", "4")
QUICK = ("--op", "matmul:m=16,n=32,k=16")


def tuned(target: str, what: Sequence[str], trials: int) -> tuple[dict[str, Any], float]:
    """Runs the command; returns its JSON object and its wall time in seconds."""
    with tempfile.TemporaryDirectory() as logs:
        command = [sys.executable, "-m", "autotune", "kernels", "--target", target, "--no-step"]
        command += [*what, "--trials", str(trials)]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--logs", logs, "--json"], stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout), time.monotonic() - began


def measure(report: Report) -> None:
    for target, trials, minutes in (("cpu", 256, 6), ("adreno", 128, 12)):
        what, count = (QUICK, QUICK_TRIALS) if report.quick else (LENET, trials)
        content, wall_s = tuned(target, what, count)
        result = Result.from_json(content)
        device = content["device"]["name"]
        name = f"{target} ({'stand-in: ' if content['stand_in'] else ''}{device})"
        worst = max(task.max_rel_error or 0.0 for task in result.tasks)
        untimed = [task.name for task in result.tasks if task.max_rel_error is None]
        report.bar(f"{name}: kernels without a right result", len(untimed), "at most", 0, "kernels")
        report.bar(f"{name}: largest relative error", worst, "at most", 1e-4, "")
        gains = [
            Interval(task.speedup, *task.ci)
            for task in result.tasks
            if task.operator in COMPUTE and task.speedup and task.ci
        ]
        mean, ends = mean_ratio(gains)
        report.bar(
            f"{name}: geometric mean speed-up, conv and matmul",
            mean,
            "at least",
            3,
            "x",
            interval=ends,
        )
        report.bar(f"{name}: wall time", wall_s / 60, "at most", minutes, "min")
        for task in content["tasks"]:
            report.row(target=target, device=device, stand_in=content["stand_in"], **task)


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure))
