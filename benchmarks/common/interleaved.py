"""Times programs that compute the same in interleaved blocks, such as exported libraries of tuned kernels."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.target.host import kernel_threads
from autotune.records import read_run
from autotune.workloads import Kernel, max_relative_error, random_inputs, reference

_SEED = 1
_TURN_S = 5e-3
_SETTLE_S = 5e-3
Turn = Callable[[int], float | None]
"""Launches that many times and waits for the last; returns the seconds, or None if the caller times it."""

# Set before the first kernel: by default TVM uses half of the processors of an x86 machine.
os.environ.setdefault("TVM_NUM_THREADS", str(kernel_threads()))


def interleaved_blocks(
    turns: Mapping[str, Turn],
    blocks: int,
    seed: int,
    *,
    turn_s: float = _TURN_S,
    by: int = 1,
    least: int = 1,
    most: float = math.inf,
    settle_s: float = _SETTLE_S,
) -> dict[str, list[float]]:
    """Times sides in interleaved blocks of random order.

    Args:
        turns: Launches each side.
        blocks: Number of samples of each side.
        seed: Seed of the order.
        turn_s: Minimum seconds of a sample.
        by: Launches that a side makes at once. The warm-up before a sample has as many launches.
        least: Fewest launches of a sample, if they take longer than ``turn_s``.
        most: Most launches of a sample.
        settle_s: Seconds between sides, in which the threads of the last one stop waiting for work.

    Returns:
        Seconds of one launch, by side and block.
    """

    def seconds(turn: Turn, times: int) -> float:
        sleep(settle_s)
        turn(by)
        began = perf_counter()
        reported = turn(times)
        return (perf_counter() - began if reported is None else reported) / times

    times = {}
    for side, turn in turns.items():
        once = min(seconds(turn, by) for _ in range(2))
        times[side] = by * max(1, round(min(max(turn_s / once, least), most) / by))
    order = np.random.default_rng(seed)
    samples: dict[str, list[float]] = {side: [] for side in turns}
    for _ in range(blocks):
        for side in order.permutation(list(turns)):
            samples[side].append(seconds(turns[side], times[side]))
    return samples


def turn_of(call: Callable[[], object], finish: Callable[[], object] = lambda: None) -> Turn:
    """Returns a turn that makes the calls and then calls `finish` once, which waits for what was launched."""

    def launched(times: int) -> None:
        for _ in range(times):
            call()
        finish()

    return launched


def tuning(
    kernel: Kernel, target: str, trials: int, logs: Path, records: Path | None = None
) -> list[str]:
    """Returns the command that tunes a kernel into a folder of runs, with earlier records if given."""
    return [
        *(sys.executable, "-m", "autotune", "kernels", "--target", target, "--op", kernel.spec),
        *("--role", kernel.role, "--trials", str(trials), "--logs", str(logs), "--quiet"),
        *(("--records", str(records)) if records else ()),
    ]


def finished_run(logs: Path, trials: int) -> Path | None:
    """Returns the newest finished run with the given number of trials in a folder of one kernel's runs, or None."""
    for folder in sorted(logs.glob("*"), reverse=True):
        run = read_run(folder)
        if run.result is not None and run.about["request"]["trials"] == trials:
            return folder
    return None


def exported(run: Path, out: Path) -> Path:
    """Exports the library of a finished run's winners as a user would; a kernel's symbol is its name."""
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


def interleaved_benchmark(
    kernel: Kernel, sides: Mapping[str, tuple[Path, str]], blocks: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Times libraries in interleaved blocks of random order.

    Args:
        kernel: The kernel that they compute.
        sides: Library and symbol of each side.
        blocks: Number of samples of each side.

    Returns:
        Seconds and the largest relative error of each side.
    """
    import tvm

    inputs = random_inputs(kernel, _SEED)
    (expected,) = reference(kernel, inputs)

    def poison() -> NDArray[np.float32]:
        return np.full(expected.shape, np.nan, np.float32)

    arguments = [tvm.runtime.tensor(array) for array in (*inputs, poison())]
    turns, errors = {}, {}
    for side, (path, symbol) in sides.items():
        function = tvm.runtime.load_module(str(path))[symbol]
        turns[side] = turn_of(partial(function, *arguments))
        arguments[-1].copyfrom(poison())
        turns[side](1)
        errors[side] = max_relative_error(arguments[-1].numpy(), expected)
    return interleaved_blocks(turns, blocks, _SEED), errors
