"""The calls of a step that a GPU can make, with kernels that runs have tuned for OpenCL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.compiler.export import (
    ExportedKernel,
    Report,
    Variant,
    opencl_device,
    variants_of_runs,
    write_launch_table,
)
from autotune.errors import UsageError
from autotune.workloads import Order, StepGraph, counterparts, reordered

VARIANT = "gpu"


@dataclass(frozen=True)
class GpuSide:
    """The part of a step that a GPU can run.

    Attributes:
        kernels: The GPU's kernel, by the number of the call that it can make.
        orders: The order of a tensor on the GPU, by name, if it differs from the CPU's.
        variant: The kernels.
        tuned_on: Name of the OpenCL device that they were tuned on; empty if unknown.
    """

    kernels: Mapping[int, ExportedKernel]
    orders: Mapping[str, Order]
    variant: Variant
    tuned_on: str

    def write(self, out: Path, report: Report = lambda phase, done, total: None) -> None:
        """Writes the sources and the launch table of the kernels into a folder.

        Raises:
            AutotuneError: A launch table cannot express a kernel.
        """
        used = {one.kernel.name: one for one in self.kernels.values()}
        variant = replace(self.variant, kernels=tuple(used.values()))
        write_launch_table([variant], VARIANT, out, report)


@dataclass(frozen=True)
class GpuRuns:
    """Finished kernel runs for a GPU: the fastest known schedule of each kernel.

    Attributes:
        variant: The kernels.
        tuned_on: Name of the OpenCL device; empty if unknown.
    """

    variant: Variant
    tuned_on: str

    def side(self, graph: StepGraph, others: Sequence[StepGraph]) -> GpuSide:
        """Returns the part of a step that a GPU can run with these kernels.

        Args:
            graph: The step.
            others: The same step in the layouts that the kernels may be for. The layout in which they make most
                calls is taken; of several such layouts, the first.

        Raises:
            UsageError: The runs have no kernel of the step.
        """
        known = {one.kernel.name: one for one in self.variant.kernels}
        best = max(
            (self._in(one, graph, known) for one in others), key=lambda side: len(side.kernels)
        )
        if not best.kernels:
            raise UsageError(
                f"--gpu-run: no run knows a kernel of {graph.name} at batch {graph.batch}",
                hint="tune them: autotune kernels --target opencl, adreno or mali, with the same model and batch",
            )
        return best

    def _in(
        self, other: StepGraph, graph: StepGraph, known: Mapping[str, ExportedKernel]
    ) -> GpuSide:
        kernels: dict[int, ExportedKernel] = {}
        orders: dict[str, Order] = {}
        for call, node in counterparts(graph, other).items():
            found = known.get(node.kernel.name)
            if found is None or found.figures.tuned_ms is None:
                continue
            kernels[call] = found
            for name in (*node.inputs, *node.outputs):
                order = reordered(graph.by_name[name], other.by_name[name])
                if order is not None:
                    orders[name] = order
        return GpuSide(kernels, orders, self.variant, self.tuned_on)


def gpu_runs(paths: Sequence[Path]) -> GpuRuns:
    """Reads finished runs for a GPU.

    Args:
        paths: Folders of the runs, at least one.

    Raises:
        UsageError: A run does not exist, has not ended or is not for OpenCL, or the runs are for several targets.
        RecordError: A run's records are damaged.
    """
    variants = variants_of_runs(paths, allow_stand_in=True)
    first = variants[0]
    for one in variants:
        if one.target.family != "opencl":
            raise UsageError(
                f"{one.source} is tuned for {one.target.name}, which is not an OpenCL target",
                hint="give it with --run; --gpu-run is for runs of opencl, adreno or mali",
            )
        if (one.target, one.space.limits) != (first.target, first.space.limits):
            raise UsageError(
                f"{one.source} is for {one.target.name}, the run before for {first.target.name}",
                hint="give --gpu-run runs of one target and search space",
            )
    kernels: dict[str, ExportedKernel] = {}
    for one in variants:
        for kernel in one.kernels:
            before = kernels.get(kernel.kernel.name)
            if before is None or _ms(kernel) < _ms(before):
                kernels[kernel.kernel.name] = kernel
    variant = replace(first, name=VARIANT, kernels=tuple(kernels.values()))
    return GpuRuns(variant, opencl_device(dict(first.device))[0])


def _ms(kernel: ExportedKernel) -> float:
    return kernel.figures.tuned_ms or float("inf")
