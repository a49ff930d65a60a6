"""Contractions drawn from public families of models: none may be left without a good form.

Draws convolutions, fully connected layers and batched products at random (common/contraction_shapes.py), tunes
each with `autotune kernels` for this processor, and times it against PyTorch's in interleaved blocks. Lists those
that are slower than 0.8x of PyTorch's, and those that reach less than a third of the median GFLOP/s of their kind.
Needs torch 2.13.0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from common.bars import QUICK_TRIALS, Report, positive, run
from common.contraction_shapes import Contraction, drawn
from common.interleaved import finished_run, interleaved_blocks, tuning, turn_of
from common.pytorch import torch
from common.torch_kernels import kept_memory, torch_call
from common.tuned_kernels import tuned_kernels

from autotune.compiler.step.step_library import step_library
from autotune.compiler.step.tuned_runs import step_runs
from autotune.compiler.target.host import kernel_threads
from autotune.measurement import median, paired_speedup
from autotune.workloads import Conv2d, Kernel, random_inputs
from autotune.workloads.layout import channels_first
from autotune.workloads.operators import Role

LEAST_RATIO, LEAST_SHARE = 0.8, 1 / 3
ALLOWED = 5.0
BLOCKS, SEED = 9, 1


def kind_of(operator: Contraction, role: Role) -> str:
    """Returns the kind whose kernels are compared with each other."""
    if not isinstance(operator, Conv2d):
        return f"{operator.name} {role}"
    if operator.groups == operator.c:
        return f"depthwise {role}"
    return f"{'grouped' if operator.groups > 1 else 'dense'} conv2d {role}"


def measure_one(
    report: Report, family: str, operator: Contraction, role: Role, logs: Path
) -> tuple[float, float]:
    """Tunes and times a kernel; returns its speed-up over PyTorch, and its GFLOP/s."""
    kernel = Kernel(operator, role)
    trials = QUICK_TRIALS if report.quick else report.options.trials
    folder = logs / kernel.name
    if finished_run(folder, trials) is None:
        subprocess.run(tuning(kernel, "cpu", trials, folder), stdout=subprocess.DEVNULL, check=True)
    found = finished_run(folder, trials)
    assert found is not None
    runs, own = step_runs([found]), Kernel(channels_first(operator), role)
    given = [torch.as_tensor(one) for one in random_inputs(own, SEED)]
    winners = {name: [one] for name, one in runs.winners.items()}
    with (
        step_library([kernel], winners, runs.target, runs.space, None) as library,
        tuned_kernels(library) as ours,
    ):
        sides = {"tuned": ours.turn(kernel)}
        for last in (False, True) if isinstance(operator, Conv2d) else (False,):
            sides[f"torch {last}"] = turn_of(torch_call(own, given, last=last))
        with torch.no_grad(), kept_memory():
            blocks = 2 if report.quick else BLOCKS
            mine, *rivals = interleaved_blocks(sides, blocks, SEED).values()
    best = min(rivals, key=median)
    speed = paired_speedup(best, mine, seed=SEED)
    pace = kernel.flops / median(mine) / 1e9
    winner = runs.winners[kernel.name]
    report.row(
        what="kernel", family=family, kind=kind_of(operator, role), spec=kernel.spec, role=role,
        formulation=winner.task.formulation, tuned_ms=1e3 * median(mine), torch_ms=1e3 * median(best),
        ratio=speed.estimate, low=speed.low, high=speed.high, gflops=pace,
    )  # fmt: skip
    print(f"{speed.estimate:6.3g}x {pace:6.1f} GFLOP/s  {family}: {role} {kernel.spec}", flush=True)
    return speed.estimate, pace


def measure(report: Report) -> None:
    torch.set_num_threads(kernel_threads())
    chosen = drawn(report.options.count, report.options.seed)
    if report.quick:
        chosen = [min(chosen, key=lambda one: one[1].flops(one[2]))]
    count = len(chosen)
    ratios: list[float] = []
    paces: list[float] = []
    with tempfile.TemporaryDirectory() as temporary:
        logs = report.options.runs or Path(temporary)
        for number, (family, operator, role) in enumerate(chosen, start=1):
            print(f"{number} of {count}:", end=" ", flush=True)
            ratio, pace = measure_one(report, family, operator, role, logs)
            ratios.append(ratio)
            paces.append(pace)
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for (_, operator, role), pace in zip(chosen, paces, strict=True):
        by_kind[kind_of(operator, role)].append(pace)
    slow = [
        pace < LEAST_SHARE * median(by_kind[kind_of(operator, role)])
        for (_, operator, role), pace in zip(chosen, paces, strict=True)
    ]
    behind = [ratio < LEAST_RATIO for ratio in ratios]
    _list(f"slower than {LEAST_RATIO}x of PyTorch's", chosen, behind)
    _list("below a third of the median GFLOP/s of their kind", chosen, slow)
    for name, some in (
        (f"kernels slower than {LEAST_RATIO}x of PyTorch's", behind),
        ("kernels below a third of their kind's median GFLOP/s", slow),
        ("kernels with either fault", [a or b for a, b in zip(behind, slow, strict=True)]),
    ):
        report.bar(f"{name}, of {count}", 100 * sum(some) / count, "at most", ALLOWED, "%")


def _list(what: str, chosen: Sequence[tuple[str, Contraction, Role]], marked: list[bool]) -> None:
    print(f"{sum(marked)} of {len(chosen)} are {what}")
    for (family, operator, role), one in zip(chosen, marked, strict=True):
        if one:
            print(f"  {family}: {role} {operator.spec()}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=positive(int), default=200, help="kernels [default: 200]")
    parser.add_argument("--seed", type=positive(int), default=1, help="of the draw [default: 1]")
    parser.add_argument("--trials", type=positive(int), default=96, help="of each [default: 96]")
    parser.add_argument(
        "--runs", type=Path, metavar="DIR", help="keep runs here, and take finished ones"
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
