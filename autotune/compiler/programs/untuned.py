"""The untuned default schedule: what TVM compiles without tuning."""

from __future__ import annotations

from typing import Any

_DATA_PARALLEL = 0  # A value of `IterVar.iter_type`.


def default_schedule(program: Any, target: Any) -> Any:
    """Schedules a program the way TVM does without tuning records.

    On a GPU-like target, this is dlight's chain of default rules. On a CPU, the loops stay as they are, and LLVM
    optimises them.

    Args:
        program: `tvm.IRModule` of unscheduled PrimFuncs.
        target: `tvm.target.Target`.

    Returns:
        The scheduled `tvm.IRModule`.
    """
    if "gpu" not in [str(key) for key in target.keys]:
        return program
    from tvm.s_tir import ScheduleError, dlight

    rules = (
        dlight.gpu.Matmul(),
        dlight.gpu.GEMV(),
        dlight.gpu.Reduction(),
        dlight.gpu.GeneralReduction(),
    )
    with target:
        try:
            return dlight.ApplyDefaultSchedule(*rules, dlight.gpu.Fallback())(program)
        except (
            AssertionError,
            ScheduleError,
        ):  # Of a rule that takes a kernel for its own, and cannot cut it.
            return dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(program)


def plain_gpu_schedule(program: Any, threads: int) -> Any:
    """Schedules a program for any GPU, with one element per work-item and one launch per stage.

    The result is slow, but has few requirements: no local memory, no group larger than `threads`, and no joining of
    stages, which TVM's own default gets wrong for some fused updates.

    Args:
        program: `tvm.IRModule` with one unscheduled PrimFunc, `main`.
        threads: Work-items of a group.

    Returns:
        The scheduled `tvm.IRModule`.
    """
    from tvm.s_tir import Schedule

    schedule = Schedule(program)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        kinds = [int(var.iter_type) for var in schedule.get(block).iter_vars]
        loops = schedule.get_loops(block)
        spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _DATA_PARALLEL]
        reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != _DATA_PARALLEL]
        if not spatial:
            spatial = [schedule.add_unit_loop(loops[0] if loops else block)]
        schedule.reorder(*spatial, *reduced)
        outer, inner = schedule.split(schedule.fuse(*spatial), factors=[None, threads])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
        if reduced:
            schedule.decompose_reduction(block, reduced[0])
    return schedule.mod
