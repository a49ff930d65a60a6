"""Kernels of every family run under Oclgrind: no access out of bounds, no race, no value that nobody wrote.

Oclgrind interprets OpenCL on the processor and checks each access (Price and McIntosh-Smith, IWOCL 2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tvm

from autotune.compiler import spaces
from autotune.compiler.build_worker import linker
from autotune.compiler.cost_model import ScheduleRanker
from autotune.compiler.device_limits import asked
from autotune.compiler.formulations import formulations
from autotune.compiler.image_reads import image_operands
from autotune.compiler.lane import Lane
from autotune.compiler.opencl_source import improved_source
from autotune.compiler.reference_data import TOLERANCE, ReferenceData
from autotune.compiler.request import TuneRequest
from autotune.compiler.runner import DeviceFingerprint, MeasureRequest, measurement_message
from autotune.compiler.scheduled import plain_gpu_program
from autotune.compiler.targets import find, tvm_target
from autotune.compiler.workers import Worker
from autotune.workloads import Kernel, parse_operator

ICD = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ICD.is_file(), reason="needs Oclgrind: apt-get install oclgrind"),
]

_TIMEOUT_S = 120.0
_SAMPLES = 3
"""Schedules of each formulation whose tiles are searched by themselves; one of each other."""

SPECS = (
    ("opencl", "conv2d:n=2,c=3,h=7,w=7,k=5,r=3,s=3,stride=1,pad=1"),
    ("opencl", "conv2d:n=2,c=3,h=7,w=7,k=5,r=3,s=3,stride=2,pad=1"),
    ("opencl", "conv2d:n=1,c=8,h=7,w=8,k=9,r=3,s=3,stride=1,pad=1"),
    ("opencl", "conv2d:n=1,c=8,h=7,w=7,k=8,r=5,s=5,stride=1,pad=2"),
    ("opencl", "conv2d:n=1,c=4,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1,groups=4"),
    ("opencl", "conv2d:n=2,c=4,h=7,w=9,k=4,r=3,s=3,stride=2,pad=1,groups=4"),
    ("opencl", "matmul:m=5,n=36,k=20"),
    ("adreno", "conv2d:n=1,c=3,h=6,w=6,k=8,r=3,s=3,stride=1,pad=1"),
    ("adreno", "matmul:m=8,n=36,k=20"),
    ("mali", "conv2d:n=1,c=3,h=6,w=6,k=4,r=3,s=3,stride=1,pad=1"),
    ("mali", "matmul:m=4,n=36,k=20"),
    ("opencl", "bias:n=2,c=3,s=20,relu=1"),
    ("opencl", "max_pool2d:n=1,c=2,h=9,w=10,r=3,s=3,stride=2,pad=1,ceil=1"),
    ("opencl", "avg_pool2d:n=2,c=3,h=8,w=8,r=2,s=2,stride=2,pad=0"),
    ("opencl", "global_avg_pool:n=2,c=3,s=13"),
    ("opencl", "batch_stats:n=2,c=3,s=20"),
    ("opencl", "batch_norm:n=2,c=3,s=20"),
    ("opencl", "concat:n=2,c1=3,c2=2,s=5"),
    ("opencl", "cross_entropy:n=3,classes=10"),
    ("opencl", "running_stats:c=5,samples=40"),
    ("opencl", "relu:size=37"),
    ("opencl", "add:size=37"),
    ("opencl", "dropout:size=37"),
    ("opencl", "sgd:size=37"),
    ("opencl", "momentum:size=37"),
    ("opencl", "adam:size=37"),
)


def _run(
    library: Path, data: Path, folder: Path, *, images: bool = False
) -> tuple[float | None, str]:
    """The error of a library's results on Oclgrind's device, and what Oclgrind has to say of its kernels.

    In a process of its own: Oclgrind takes memory that another kernel left for memory that nobody wrote. It loses
    sight of where the values of images come from, so whether somebody wrote them is not asked of those.
    """
    vendors, log = folder / "vendors", folder / "oclgrind.log"
    vendors.mkdir(exist_ok=True)
    (vendors / "oclgrind.icd").write_text(f"{ICD}\n", encoding="utf-8")
    worker = Worker(
        "autotune.compiler.run_worker",
        ["opencl"],
        {
            "OCL_ICD_VENDORS": str(vendors),
            "OCLGRIND_DATA_RACES": "1",
            "OCLGRIND_UNINITIALIZED": "0" if images else "1",
            # The kernel as it is written: an optimiser may read ahead where the device allows it.
            "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable",
            "OCLGRIND_LOG": str(log),
        },
    )
    worker.start()
    try:
        request = MeasureRequest(library, data, 1, 0.0, 0.0, TOLERANCE, _TIMEOUT_S)
        answer = worker.ask(measurement_message(request), timeout=_TIMEOUT_S)
    finally:
        worker.stop()
    found = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return answer.get("max_rel_error"), found.strip()


def _libraries(kernel: Kernel, name: str, folder: Path) -> Iterator[tuple[str, Path, bool]]:
    """Schedules that the search would try, built as the search builds them; and whether they read images.

    Those that do come once more as they are for a device without images.
    """
    spec = find(name)
    asking = TuneRequest(spec, spaces.load(spec.space_path()), "", None, (), 1, 1)
    space = asked(asking, DeviceFingerprint("", "opencl", "", (), stand_in=True)).space
    target = tvm_target(spec, space.limits)
    rules = {rule.kind for rule in space.rules}
    for formulation in formulations(kernel, None, rules):
        lane = Lane(
            kernel,
            formulation,
            space=space,
            target=target,
            ranker=ScheduleRanker(seed=1, warmup=24),
            seed=1,
            threads=1,
        )
        for candidate in lane.propose(_SAMPLES if formulation.rule else 1):
            program = candidate.scheduled()
            images = bool(image_operands(program))
            for form in (True, False) if images else (False,):
                path = folder / f"{candidate.digest}-{form}.so"
                context = improved_source(program, images=form)
                with tvm.transform.PassContext(config={"tirx.disable_assert": True}), context:
                    built = tvm.compile(program, target)
                built.export_library(str(path), fcompile=linker("", fast=True))
                yield f"{lane.name} {candidate.digest}", path, form


@pytest.mark.parametrize(("target", "spec"), SPECS)
def test_no_kernel_of_a_family_reads_or_writes_what_it_must_not(
    target: str, spec: str, tmp_path: Path
) -> None:
    operator = parse_operator(spec)
    data = ReferenceData(tmp_path / "data", seed=1)
    tried = 0
    for role in operator.roles():
        kernel = Kernel(operator, role)
        for name, path, images in _libraries(kernel, target, tmp_path):
            error, found = _run(path, data.of(kernel), tmp_path, images=images)
            assert not found, f"{name}: {found[:800]}"
            assert error is not None and error <= TOLERANCE, name
            tried += 1
    assert tried > 0


def test_oclgrind_would_see_a_kernel_that_writes_too_far(tmp_path: Path) -> None:
    """The check of the check: a kernel for one element more than there are."""
    kernel = Kernel(parse_operator("relu:size=37"), "forward")
    longer = Kernel(parse_operator("relu:size=38"), "forward")
    target = tvm_target(find("opencl"), None)
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        built = tvm.compile(plain_gpu_program(longer, 19), target)
    path = tmp_path / "kernel.so"
    built.export_library(str(path), fcompile=linker("", fast=True))
    _, found = _run(path, ReferenceData(tmp_path / "data", seed=1).of(kernel), tmp_path)
    assert "Invalid write" in found
