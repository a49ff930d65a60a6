"""Check that the search never stalls: on each OpenCL target, nearly all requested trials are carried out.

A 1024 matmul and a 64->64 3x3 convolution on 56x56, forward, 256 trials each.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from common.bars import QUICK_TRIALS, Report, run

from autotune.records import read_run

OPERATORS = {
    "matmul 1024": "matmul:m=1024,n=1024,k=1024",
    "convolution 64->64 56x56 3x3": "conv2d:n=1,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1",
}
QUICK_OPERATORS = {
    "matmul 64": "matmul:m=64,n=64,k=64",
    "convolution 16->16 14x14 3x3": "conv2d:n=1,c=16,h=14,w=14,k=16,r=3,s=3,stride=1,pad=1",
}
TRIALS = 256


def measure(report: Report) -> None:
    trials, goal = (QUICK_TRIALS, QUICK_TRIALS) if report.quick else (TRIALS, 250)
    operators = QUICK_OPERATORS if report.quick else OPERATORS
    for target in ("adreno",) if report.quick else ("adreno", "mali", "opencl"):
        for name, spec in operators.items():
            with tempfile.TemporaryDirectory() as logs:
                command = [sys.executable, "-m", "autotune", "kernels", "--target", target]
                command += ["--op", spec, "--role", "forward", "--trials", str(trials)]
                subprocess.run(
                    [*command, "--logs", logs, "--json"], stdout=subprocess.PIPE, check=True
                )
                (folder,) = Path(logs).iterdir()
                events = read_run(folder)
            digests = {event["digest"] for event in events.trials()}
            report.bar(f"{target}, {name}: distinct candidates", len(digests), "at least", goal, "")
            rejected: Counter[str] = Counter()
            rounds = [event for event in events.events if event["event"] == "round"]
            for event in rounds:
                rejected.update(event["rejected"])
            report.row(
                target=target,
                operator=spec,
                asked=trials,
                distinct=len(digests),
                statuses=Counter(event["status"] for event in events.trials()),
                samples_accepted=sum(event["accepted"] for event in rounds),
                samples_rejected=rejected,
                search_s=sum(event["search_s"] for event in rounds),
            )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure))
