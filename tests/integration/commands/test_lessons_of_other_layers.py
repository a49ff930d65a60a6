"""Searches of the GPU's benchmark that begin with records: with those of other layers, and of no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from common.interleaved import tuning
from opencl_gpu import had_records, kernels, recorded

from autotune.errors import UsageError
from autotune.records.database_file import read_database

ROOT = Path(__file__).parents[3]
TRIALS = 8
MATMUL = "matmul, forward"


def _tuned(runs: Path, *options: str) -> None:
    command = ["benchmarks/opencl_gpu.py", "--quick", "--only-tune", "--sides", "ours"]
    subprocess.run([sys.executable, *command, "--runs", str(runs), *options], cwd=ROOT, check=True)


@pytest.mark.slow
def test_a_search_is_taught_by_other_layers_alone(tmp_path: Path) -> None:
    wanted = kernels(quick=True)
    matmul = wanted[MATMUL]
    _tuned(tmp_path / "first", "--only", *wanted)
    assert not had_records(tmp_path / "first" / "ours" / matmul.name, TRIALS)
    merge = [
        sys.executable,
        "-m",
        "autotune",
        "records",
        "merge",
        "--out",
        str(tmp_path / "records"),
    ]
    found = [str(tmp_path / "first" / "ours" / kernel.name) for kernel in wanted.values()]
    subprocess.run([*merge, *found], cwd=ROOT, check=True)
    (records,) = (tmp_path / "records").glob("*.records.gz")
    assert set(read_database(records).tasks()) == {kernel.name for kernel in wanted.values()}

    _tuned(tmp_path / "taught", "--teach", str(records), "--only", MATMUL)
    logs = tmp_path / "taught" / "ours" / matmul.name
    assert had_records(logs, TRIALS)
    (about,) = logs.glob("*/run.json")
    (lessons,) = json.loads(about.read_text())["request"]["records"]
    assert matmul.name in Path(lessons).name
    others = {kernel.name for name, kernel in wanted.items() if name != MATMUL}
    assert set(read_database(Path(lessons)).tasks()) == others

    own = tmp_path / "own" / matmul.name
    subprocess.run(tuning(matmul, "opencl", TRIALS, own, records), cwd=ROOT, check=True)
    with pytest.raises(UsageError, match="of its own kernel"):
        had_records(own, TRIALS)
    subprocess.run([*merge[:-1], str(tmp_path / "known"), str(own)], cwd=ROOT, check=True)
    (known,) = (tmp_path / "known").glob("*.records.gz")
    with pytest.raises(UsageError, match="of its own kernel"):
        recorded({MATMUL: matmul}, TRIALS, known)
