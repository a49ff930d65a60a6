"""Stock's searches, with which the benchmarks compare: what they leave to others that measure on the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRIALS = 8
# Tells of each process that measures.
SITE = """
import os, sys
if "autotune.compiler.runners.run_worker" in sys.orig_argv:
    open(os.environ["STARTED"], "a").write(f"{os.getpid()}\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("grows_mib", "processes"), [(8, 1), (768, TRIALS // 2 + 1)])
def test_a_process_for_which_the_driver_keeps_memory_makes_way_for_another(
    tmp_path: Path, grows_mib: int, processes: int
) -> None:
    """Of a board of 16 GiB a search may have one: less than two measurements of 768 MiB each."""
    nvml = tmp_path / "libnvidia-ml.so.1"
    source = ROOT / "tests" / "data" / "nvml.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(nvml), str(source)], check=True)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    started = tmp_path / "started"

    done = subprocess.run(
        [sys.executable, "benchmarks/opencl_gpu.py", "--quick", "--only-tune", "--sides", "stock",
         "--only", "matmul, forward", "--runs", str(tmp_path / "runs")],
        cwd=ROOT,
        env={
            **os.environ, "GROWS": str(grows_mib), "STARTED": str(started),
            "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    (reported,) = (tmp_path / "runs" / "stock").glob("*/stock.json")
    search = json.loads(reported.read_text())
    assert search["ended"] and search["right"] == search["measured"] == TRIALS
    assert len(started.read_text().split()) == processes


@pytest.mark.parametrize("option", ["--teach .", "--jobs 2", "--only-tune", "--sides ours"])
def test_what_is_for_a_gpu_is_refused_where_a_processor_is_asked_for(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/opencl_gpu.py", "--pocl", *option.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert f"{option.split()[0]} is for a GPU" in done.stderr
