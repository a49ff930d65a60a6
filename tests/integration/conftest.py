"""What several files of tests use, made once for all processes that run them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from command import autotune, one_folder


@pytest.fixture(scope="session")
def matmul_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the three kernels of a product on this processor. Tests change copies of it alone."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    logs, made = root / "matmul-run", root / "matmul-run-begun"
    with (root / "matmul-run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not logs.exists():
            done = autotune(
                "kernels", "--op", "matmul:m=8,n=24,k=40", "--trials", "6", "--logs", made,
                XDG_STATE_HOME=str(root / "matmul-run-state"),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            made.rename(logs)
    return one_folder(logs)
