"""Compares the convolutions and matmuls of a tuned step with PyTorch's, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.compiler.step.step_library import StepLibrary
from autotune.measurement import median, paired_speedup
from autotune.workloads import Conv2d, Kernel, Matmul, StepGraph, random_inputs
from autotune.workloads.graph import Task, tasks
from common.bars import Report
from common.interleaved import interleaved_blocks, turn_of
from common.pytorch import torch
from common.torch_kernels import kept_memory, torch_call
from common.tuned_kernels import TunedKernels, tuned_kernels

BLOCKS = 7
_SEED = 1


@dataclass(frozen=True)
class Compared:
    """Times of a convolution or matmul of a tuned step and of PyTorch's counterpart.

    Attributes:
        task: The tuned kernel, with its bias, activation or update if they are fused.
        natural: The same kernel in the plain step, as PyTorch computes it: images are not merged into one.
        tuned_ms: Median time of the tuned kernel in milliseconds.
        torch_ms: Median time of PyTorch in its faster layout in milliseconds, without the fused operations.
        ratio: Speed-up of the tuned kernel over PyTorch, paired by blocks.
    """

    task: Task
    natural: Conv2d | Matmul
    tuned_ms: float
    torch_ms: float
    ratio: float

    def lost_ms(self) -> float:
        """Returns the milliseconds of a step that PyTorch's kernel would save."""
        return self.task.count * (self.tuned_ms - self.torch_ms)


def against_torch(
    report: Report, name: str, graph: StepGraph, plain: StepGraph, library: StepLibrary
) -> list[Compared]:
    """Times a tuned step's convolutions and matmuls against PyTorch's, in interleaved blocks."""
    natural = {
        (place, task.kernel.role): task.kernel
        for task in tasks(plain)
        for place in task.places
        if isinstance(task.kernel.operator, Conv2d | Matmul)
    }
    with tuned_kernels(library) as ours:
        return [
            one_against_torch(report, name, task, natural[task.places[0], task.kernel.role], ours)
            for task in tasks(graph)
            if isinstance(task.kernel.operator, Conv2d | Matmul)
        ]


def one_against_torch(
    report: Report, name: str, task: Task, natural: Kernel, ours: TunedKernels
) -> Compared:
    """Times one task against PyTorch; `natural` is the same kernel in the plain step."""
    kernel, operator = task.kernel, natural.operator
    assert isinstance(operator, Conv2d | Matmul)
    given = [torch.as_tensor(one) for one in random_inputs(natural, _SEED)]
    turns = {"tuned": ours.turn(kernel)}
    for last in (False, True) if isinstance(operator, Conv2d) else (False,):
        turns[f"torch {last}"] = turn_of(torch_call(natural, given, last=last))
    with torch.no_grad(), kept_memory():
        ours_s, *rivals = interleaved_blocks(turns, 3 if report.quick else BLOCKS, _SEED).values()
    best = min(rivals, key=median)
    speed = paired_speedup(best, ours_s, seed=_SEED)
    one = Compared(task, operator, 1e3 * median(ours_s), 1e3 * median(best), speed.estimate)
    report.row(
        what="kernel", model=name, spec=kernel.spec, role=kernel.role, count=task.count,
        natural=natural.spec, tuned_ms=one.tuned_ms, torch_ms=one.torch_ms,
        ratio=speed.estimate, low=speed.low, high=speed.high,
    )  # fmt: skip
    return one


def slower_kernels(model: str, compared: Sequence[Compared]) -> None:
    """Prints the convolutions and matmuls that PyTorch computes faster, the costliest first."""
    slower = [one for one in compared if one.ratio < 1]
    print(
        f"{model}: {len(slower)} of {len(compared)} convolutions and matmuls are slower than PyTorch's"
    )
    for one in sorted(slower, key=Compared.lost_ms, reverse=True):
        kernel, count = one.task.kernel, one.task.count
        times = f"{one.tuned_ms:.3f} against {one.torch_ms:.3f} ms x{count}, {one.ratio:.2f}x"
        print(f"  {one.lost_ms():8.3f} ms a step: {times}  {kernel.role} {kernel.spec}")
