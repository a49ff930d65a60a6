"""OpenCL libraries with the ways of other drivers; see `tests/data/opencl_driver.c`."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "data" / "opencl_driver.c"


def driver(folder: Path) -> Path:
    """Compiles the library into a folder; variables of whoever loads it say which ways it has."""
    path = folder / "libOpenCL.so"
    subprocess.run(
        [
            "cc", "-shared", "-fPIC", "-o", path, _SOURCE,
            "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl",
        ],
        check=True,
    )  # fmt: skip
    return path
