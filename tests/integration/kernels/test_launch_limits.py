"""No kernel is built that its device cannot launch: candidates, untuned defaults, libraries for TVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tvm
from exports import exported

from autotune.compiler.export.exporter import Format
from autotune.compiler.export.variants import ExportedKernel, Figures, Variant
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_c.launch_limits import BeyondLimitsError, checked
from autotune.compiler.programs.untuned import plain_gpu_schedule
from autotune.compiler.runners.builder import Builder, BuildRequest, target_text
from autotune.compiler.target.spaces import Limits, load
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import Kernel, parse_operator

SPEC = find("opencl")
SPACE = load(SPEC.space_path())
KERNEL = Kernel(parse_operator("matmul:m=8,n=64,k=64"), "forward")
ROOMY = Limits(max_threads_per_block=1024, max_item_sizes=(1024, 1024, 64))
TOO_SMALL = (
    (ROOMY, ""),
    (Limits(max_threads_per_block=64), "a work-group of 128 work-items, where the device has 64"),
    (
        Limits(max_item_sizes=(64, 64, 64)),
        "a work-group of (128, 1, 1) work-items, where the device has (64, 64, 64) at most",
    ),
    (
        Limits(max_alloc_bytes=4096),
        "a buffer of 16384 bytes, where the device has 4096 at most",
    ),
)


def _unscheduled() -> tvm.IRModule:
    (one, *_) = formulations(KERNEL, None, set())
    return tvm.IRModule({"main": prim_func(KERNEL, one)})


def _wide() -> tvm.IRModule:
    """128 work-items a group."""
    return plain_gpu_schedule(_unscheduled(), 128)


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    made = Builder(workers=1, timeout_s=60, temporary=tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(("limits", "words"), TOO_SMALL)
def test_a_build_names_what_the_device_does_not_allow(
    builder: Builder, tmp_path: Path, limits: Limits, words: str
) -> None:
    program = tvm.ir.save_json(_wide())
    target = target_text(tvm_target(SPEC, ROOMY))
    (failure,) = builder.submit(
        [BuildRequest(program, target, tmp_path / "a.so", limits=limits)]
    ).result()
    assert (failure.message if failure else "").partition("needs ")[2].startswith(words)
    assert (tmp_path / "a.so").exists() != bool(words)


def test_local_memory_is_counted() -> None:
    module = _unscheduled()
    schedule = tvm.s_tir.Schedule(module)
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    shared = schedule.cache_read(block, 0, "shared")
    outer, *_ = schedule.get_loops(block)
    schedule.bind(outer, "blockIdx.x")
    schedule.compute_at(shared, outer)
    target = tvm_target(SPEC, ROOMY)
    with checked(Limits(max_local_memory_bytes=256)):
        tvm.compile(schedule.mod, target)
    with (
        pytest.raises(BeyondLimitsError, match="256 bytes of local memory"),
        checked(Limits(max_local_memory_bytes=255)),
    ):
        tvm.compile(schedule.mod, target)


@pytest.mark.parametrize(("kind", "files"), [("tvm", "lib/*"), ("opencl", "kernels/*")])
def test_an_export_holds_no_kernel_that_the_device_cannot_launch(
    tmp_path: Path, kind: Format, files: str
) -> None:
    def wide(target: object) -> tvm.IRModule:
        return _wide()

    space = SPACE.model_copy(update={"limits": Limits(max_threads_per_block=64)})
    tuned = ExportedKernel(KERNEL, wide, tuned=True, count=1, figures=Figures())
    with pytest.raises(BeyondLimitsError, match="needs a work-group of 128 work-items"):
        exported([Variant("small", SPEC, space, (tuned,))], tmp_path / "out", kind)
    assert not list((tmp_path / "out").glob(files))
