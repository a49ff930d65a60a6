"""OpenCL libraries that imitate other drivers; see `tests/data/opencl_driver.c`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "data" / "opencl_driver.c"


def driver(folder: Path, **ways: str) -> Path:
    """Compiles the library into a folder.

    Args:
        folder: Where it goes.
        ways: Those that it always has; others, variables of whoever loads it say.
    """
    path = folder / "libOpenCL.so"
    subprocess.run(
        [
            "cc", "-shared", "-fPIC", "-o", path, _SOURCE, *_defined(ways),
            "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl",
        ],
        check=True,
    )  # fmt: skip
    return path


def _defined(ways: Mapping[str, str]) -> list[str]:
    listed = ", ".join(json.dumps(f"{name}={value}") for name, value in ways.items())
    return [f"-DWAYS={listed}"] if ways else []
