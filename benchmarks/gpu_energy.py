"""Trade-off between time and energy of one kernel's schedules on an NVIDIA GPU, through OpenCL.

Three tasks, the roles of a convolution, are tuned with `autotune kernels --target opencl`. About twenty schedules
of each are chosen, from the fastest to those that take four times as long. They then run for seconds at a time, in
shuffled blocks. NVML's counter gives the joules of the whole board in that time; the power of the idle board is
reported beside them. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common.bars import Report, run
from common.board import Board

from autotune.compiler.programs.scheduled import replayed
from autotune.compiler.runners.builder import Builder, BuildRequest, target_text
from autotune.compiler.target.request import TuneRequest
from autotune.compiler.target.targets import tvm_target
from autotune.measurement.statistics import Interval, bootstrap_median, paired_speedup
from autotune.records import read_run
from autotune.records.folder import Run
from autotune.studies.space.pareto import front
from autotune.workloads.operators import Kernel

OPERATOR = "conv2d:n=16,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1"
SLOWEST = 4.0
WARM_S, IDLE_S = 0.3, 4.0
_MJ = 1e-3


def tick(board: Board) -> tuple[float, float]:
    """Returns seconds and joules at the counter's next change."""
    first = board.millijoules()
    while (now := board.millijoules()) == first:
        time.sleep(0.001)
    return time.perf_counter(), now * _MJ


class Schedule:
    """A kernel's schedule that is loaded on the GPU.

    Args:
        digest: Identity of the schedule.
        library: Its shared library.
        kernel: The kernel that it computes.
    """

    def __init__(self, digest: str, library: Path, kernel: Kernel) -> None:
        import tvm

        self.digest = digest
        self._device = tvm.device("opencl", 0)
        rng = np.random.default_rng(7)
        operands = [*kernel.inputs, *kernel.outputs]
        self._operands = [
            tvm.runtime.tensor(rng.uniform(-1, 1, spec.shape).astype(spec.dtype), self._device)
            for spec in operands
        ]
        self._module = tvm.runtime.load_module(str(library))
        self.seconds = self.call(3)
        """Seconds of a call, measured when the schedule was loaded."""

    def call(self, count: int) -> float:
        """Returns the mean seconds of the given number of calls."""
        timed = self._module.time_evaluator("main", self._device, number=count, repeat=1)
        return float(timed(*self._operands).mean)


def tuned(trials: int, logs: Path) -> Run:
    """Returns the run that found the schedules: a finished one, or a new one."""
    if not list(logs.glob("*/result.json")):
        words = ["kernels", "--target", "opencl", "--op", OPERATOR, "--trials", str(trials)]
        subprocess.run(
            [sys.executable, "-m", "autotune", *words, "--logs", str(logs)],
            check=True,
            stdout=sys.stderr,
        )
    (result,) = logs.glob("*/result.json")
    return read_run(result.parent)


def candidates(run_: Run, task: str, count: int) -> list[dict[str, Any]]:
    """Returns correct trials of a task: half of them the fastest, the others spread over the slower ones."""
    known = {
        event["digest"]: event
        for event in run_.trials()
        if event["task"] == task and event["status"] == "ok"
    }
    ranked = sorted(known.values(), key=lambda event: float(np.median(event["samples_s"])))
    slow = SLOWEST * float(np.median(ranked[0]["samples_s"]))
    ranked = [event for event in ranked if float(np.median(event["samples_s"])) <= slow]
    fast, rest = ranked[: count // 2], ranked[count // 2 :]
    if not rest:
        return fast
    spread = np.unique(np.linspace(0, len(rest) - 1, count - len(fast)).round().astype(int))
    return fast + [rest[int(i)] for i in spread]


def built(run_: Run, task: str, kernel: Kernel, count: int, folder: Path) -> list[Schedule]:
    """Returns the candidates of a task, compiled and loaded on the GPU."""
    request = TuneRequest.from_json(run_.about["request"])
    target = tvm_target(request.target, request.space.limits, request.space.compile)
    import tvm

    chosen = candidates(run_, task, count)
    builds = []
    for event in chosen:
        place = folder / event["digest"]
        place.mkdir(parents=True)
        program = replayed(kernel, event["formulation"], event["trace"], event["digest"])
        builds.append(
            BuildRequest(str(tvm.ir.save_json(program)), target_text(target), place / "kernel.so")
        )
    builder = Builder(workers=max(1, (os.cpu_count() or 2) - 2), timeout_s=300, temporary=folder)
    try:
        builder.start()
        failures = builder.submit(builds).result()
    finally:
        builder.stop()
    return [
        Schedule(event["digest"], one.output, kernel)
        for event, one, failure in zip(chosen, builds, failures, strict=True)
        if failure is None
    ]


def run_for(board: Board, schedule: Schedule, seconds: float) -> tuple[float, float]:
    """Calls a schedule for the given time; returns seconds and joules of one call."""
    schedule.call(max(1, int(WARM_S / schedule.seconds)))
    # Many short turns, so that the last change of the counter is close to the end.
    turn = max(1, int(0.02 / schedule.seconds))
    start_s, start_j = tick(board)
    calls = 0
    while time.perf_counter() - start_s < seconds:
        schedule.call(turn)
        calls += turn
    # Calls that run until the counter changes count in both figures.
    before = board.millijoules()
    while board.millijoules() == before:
        schedule.call(turn)
        calls += turn
    end_s, end_j = time.perf_counter(), board.millijoules() * _MJ
    return (end_s - start_s) / calls, (end_j - start_j) / calls


def idle(board: Board, seconds: float) -> float:
    """Returns the power of the board in watts while nothing runs."""
    start_s, start_j = tick(board)
    time.sleep(seconds)
    end_s, end_j = tick(board)
    return (end_j - start_j) / (end_s - start_s)


def measured(
    board: Board, schedules: Sequence[Schedule], blocks: int, seconds: float
) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Measures schedules in shuffled blocks.

    Returns:
        Seconds and joules of a call, shape (schedules, blocks, 2); and watts of the idle board before each block.
    """
    order = random.Random(1)
    found = np.empty((len(schedules), blocks, 2))
    idles = []
    for block in range(blocks):
        time.sleep(0.5)
        idles.append(idle(board, IDLE_S if seconds > 1 else 0.5))
        turns = list(range(len(schedules)))
        order.shuffle(turns)
        for turn in turns:
            found[turn, block] = run_for(board, schedules[turn], seconds)
    return found, idles


def text(interval: Interval) -> str:
    return f"{interval.estimate:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def reported(interval: Interval, scale: float) -> dict[str, Any]:
    ends = interval.ends
    return {"value": scale * interval.estimate, "ci": [scale * x for x in ends] if ends else None}


def measure(report: Report) -> None:
    board = Board()
    options = report.options
    count, blocks, seconds = (
        (4, 2, 0.5) if report.quick else (options.schedules, options.blocks, options.seconds)
    )
    with tempfile.TemporaryDirectory(prefix="autotune-gpu-") as made:
        logs = options.logs or Path(made) / "logs"
        run_ = tuned(24 if report.quick else options.trials, logs)
        request = TuneRequest.from_json(run_.about["request"])
        for task in request.tasks:
            schedules = built(
                run_, task.kernel.name, task.kernel, count, Path(made) / task.kernel.role
            )
            figures, idles = measured(board, schedules, blocks, seconds)
            judge(report, task.kernel.role, schedules, figures, idles)


def judge(
    report: Report,
    role: str,
    schedules: Sequence[Schedule],
    figures: np.ndarray[Any, Any],
    idles: Sequence[float],
) -> None:
    """Reports the front over a task's schedules, with intervals, and the trade-off between its ends."""
    middle = np.median(figures, axis=1)
    on_front = sorted(front(middle), key=lambda i: middle[i, 0])
    for index, schedule in enumerate(schedules):
        time_s, energy_j = (
            bootstrap_median(figures[index, :, k].tolist(), positive=k == 0, seed=1) for k in (0, 1)
        )
        report.row(
            role=role, digest=schedule.digest, on_front=index in on_front, ms=reported(time_s, 1e3),
            mj=reported(energy_j, 1e3), watts=float(middle[index, 1] / middle[index, 0]),
            idle_w=float(np.median(idles)),
            blocks=figures[index].tolist(),
        )  # fmt: skip
    fast, frugal = on_front[0], on_front[-1]
    slower = paired_speedup(figures[frugal, :, 0].tolist(), figures[fast, :, 0].tolist(), seed=1)
    saved = paired_speedup(figures[fast, :, 1].tolist(), figures[frugal, :, 1].tolist(), seed=1)
    print(
        f"{role}: {len(schedules)} schedules, {len(on_front)} on the front; the fastest takes "
        f"{1e3 * middle[fast, 0]:.4g} ms and {1e3 * middle[fast, 1]:.4g} mJ, the most frugal "
        f"{text(slower)} times as long; the fastest takes {text(saved)} times its joules"
    )
    report.bar(f"{role}: schedules measured", len(schedules), "at least", 8, "schedules")
    report.bar(
        f"{role}: schedules on the front of time and energy",
        len(on_front),
        "at least",
        1,
        "schedules",
    )
    widths = [
        (i.high - i.low) / i.estimate
        for k in (0, 1)
        for i in (
            bootstrap_median(figures[x, :, k].tolist(), positive=k == 0, seed=1) for x in on_front
        )
    ]
    report.bar(
        f"{role}: widest interval of a figure on the front", 100 * max(widths), "at most", 20, "%"
    )
    report.row(
        role=role, trade={"slower": vars(slower), "joules_saved": vars(saved)}, fastest=schedules[fast].digest,
        most_frugal=schedules[frugal].digest,
    )  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trials", type=int, default=384, help="of the run that finds schedules")
    parser.add_argument("--logs", type=Path, help="folder with that run, or for it")
    parser.add_argument("--schedules", type=int, default=20, help="of each task")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="a schedule in a block")


def has_gpu() -> bool:
    """Returns whether this machine has an NVIDIA GPU."""
    try:
        Board()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    if not has_gpu():
        print("no NVIDIA GPU here: nothing is measured", file=sys.stderr)
    raise SystemExit(run(__doc__ or "", measure if has_gpu() else lambda report: None, options))
