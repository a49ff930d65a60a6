"""Start-up time of `autotune --help`."""

from __future__ import annotations

import subprocess
import sys
import time

from common.bars import Report, run


def measure(report: Report) -> None:
    times = []
    for _ in range(3 if report.quick else 15):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "autotune", "--help"], stdout=subprocess.DEVNULL, check=True
        )
        times.append(time.perf_counter() - began)
    report.bar("slowest start of autotune --help", max(times), "at most", 0.4, "s")
    report.row(seconds=times)


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure))
