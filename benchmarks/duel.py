"""Tuned kernels as libraries, and two of them timed against each other on this host's processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autotune.records import read_run
from autotune.workloads import Kernel, max_relative_error, random_inputs, reference

_SEED = 1
_CALLS = 20


def finished_run(logs: Path) -> Path | None:
    """The finished run in a folder of runs of one kernel; None when there is none."""
    for folder in sorted(logs.glob("*")):
        if read_run(folder).result is not None:
            return folder
    return None


def exported(run: Path, out: Path) -> Path:
    """The library of a finished run's winners, exported as users do it; a kernel has its name as symbol."""
    subprocess.run(
        [
            *(sys.executable, "-m", "autotune", "export", str(run), "--out", str(out)),
            *("--allow-stand-in", "--quiet"),
        ],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    (library,) = (out / "lib").glob("*.so")
    return library


def duel(
    kernel: Kernel, sides: Mapping[str, tuple[Path, str]], blocks: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Times libraries in interleaved blocks of random order.

    Args:
        kernel: What they compute.
        sides: Each side's library and its symbol.
        blocks: Samples of each.

    Returns:
        Seconds, and the largest relative error of each side.
    """
    import tvm

    inputs = random_inputs(kernel, _SEED)
    (expected,) = reference(kernel, inputs)
    device = tvm.cpu()
    arguments = [tvm.runtime.tensor(array, device=device) for array in inputs]
    arguments.append(tvm.runtime.tensor(np.full(expected.shape, np.nan, "float32"), device=device))
    libraries = {side: tvm.runtime.load_module(str(path)) for side, (path, _) in sides.items()}
    errors: dict[str, float] = {}
    for side, (_, symbol) in sides.items():
        arguments[-1].copyfrom(np.full(expected.shape, np.nan, "float32"))
        libraries[side][symbol](*arguments)
        errors[side] = max_relative_error(arguments[-1].numpy(), expected)
    order = np.random.default_rng(_SEED)
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(blocks):
        for side in order.permutation(list(sides)):
            timer = libraries[side].time_evaluator(sides[side][1], device, number=_CALLS, repeat=1)
            times[side].append(float(timer(*arguments).results[0]))
    return times, errors
