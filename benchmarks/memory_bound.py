"""Element-wise and reduction kernels without a trial, beside a copy of as many bytes.

Takes the kernels of the models in examples/ that memory limits and that move at least a mebibyte. Compiles each
with the schedule that a step uses if nothing was tuned (`compiler/rules/streaming.py`), and times it in interleaved
blocks with a copy that reads and writes as many bytes together. Needs torch 2.13.0 to read the models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from common.bars import Report, run
from common.interleaved import interleaved_blocks
from common.tuned_kernels import TunedKernels, tuned_kernels
from models import BATCH, MODELS, step_of

from autotune.compiler.step.step_library import step_library
from autotune.compiler.step.tuned_runs import StepRuns, step_runs
from autotune.measurement import median, paired_speedup
from autotune.workloads import Kernel, StepForm, parse_kernel
from autotune.workloads.graph import tasks

LEAST_BYTES = 1 << 20
BLOCKS, SEED = 9, 1
QUICK = ("unet",)
QUICK_KERNELS = 4
_ROUND = 4096
"""Elements of a copy are a multiple of this."""


def memory_bound(names: Sequence[str]) -> list[tuple[str, Kernel]]:
    """Returns the distinct kernels of models' steps that memory limits, each with its first model."""
    found: dict[str, tuple[str, Kernel]] = {}
    for name in names:
        graph = step_of(name, transfer=False).graph(StepForm("channels_last"))
        for task in tasks(graph):
            kernel = task.kernel
            if not kernel.is_compute and kernel.bytes >= LEAST_BYTES:
                found.setdefault(kernel.name, (name, kernel))
    return list(found.values())


def copy_of(kernel: Kernel) -> Kernel:
    """Returns a copy that reads and writes as many bytes together as a kernel."""
    size = max(_ROUND, kernel.bytes // 8 // _ROUND * _ROUND)
    return parse_kernel(f"expr:(in f {size})(map {size} = (at 0 a0))(out 0)", "forward")


def measure(report: Report) -> None:
    known = [name for names in MODELS.values() for name in names]
    kernels = memory_bound(report.options.models or (QUICK if report.quick else known))
    if report.quick:
        kernels = kernels[:QUICK_KERNELS]
    copies = {one.name: one for one in (copy_of(kernel) for _, kernel in kernels)}
    shares = list(_shares(report, kernels, list(copies.values()), step_runs([])))
    report.bar(
        f"speed beside a copy of as many bytes, median of {len(shares)} kernels at batch {BATCH}",
        median(shares), "at least", 0.8, "x",
    )  # fmt: skip


def _shares(
    report: Report, kernels: Sequence[tuple[str, Kernel]], copies: Sequence[Kernel], runs: StepRuns
) -> Iterator[float]:
    with (
        step_library([one for _, one in kernels], {}, runs.target, runs.space, None) as ours,
        step_library(copies, {}, runs.target, runs.space, None) as theirs,
        tuned_kernels(ours) as mine,
        tuned_kernels(theirs) as others,
    ):
        for model, kernel in kernels:
            yield _share(report, model, kernel, mine, others)


def _share(
    report: Report, model: str, kernel: Kernel, mine: TunedKernels, others: TunedKernels
) -> float:
    sides = {"kernel": mine.turn(kernel), "copy": others.turn(copy_of(kernel))}
    found = interleaved_blocks(sides, 2 if report.quick else BLOCKS, SEED)
    share = paired_speedup(found["copy"], found["kernel"], seed=SEED)
    pace = kernel.bytes / median(found["kernel"]) / 1e9
    report.row(
        what="kernel", model=model, spec=kernel.spec, role=kernel.role, bytes=kernel.bytes,
        us=1e6 * median(found["kernel"]), gbytes_a_second=pace, share=share.estimate, low=share.low,
        high=share.high,
    )  # fmt: skip
    text = kernel.spec if len(kernel.spec) < 100 else f"{kernel.spec[:97]}..."
    print(f"{share.estimate:5.2f}x of a copy, {pace:5.1f} GB/s  {model}: {text}", flush=True)
    return share.estimate


def add_options(parser: argparse.ArgumentParser) -> None:
    names = [name for some in MODELS.values() for name in some]
    parser.add_argument(
        "--models", nargs="+", choices=names, metavar="MODEL", help="only kernels of these"
    )


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", measure, add_options))
