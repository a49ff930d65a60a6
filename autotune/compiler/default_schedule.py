"""The untuned default schedule: what TVM compiles when nobody has tuned anything."""

from __future__ import annotations

from typing import Any


def default_schedule(program: Any, target: Any) -> Any:
    """Schedules a program the way TVM does without tuning records.

    On a GPU-like target that is dlight's chain of default rules; on a CPU the loops stay as they are written
    and LLVM optimises them.

    Args:
        program: `tvm.IRModule` of unscheduled PrimFuncs.
        target: `tvm.target.Target`.

    Returns:
        The scheduled `tvm.IRModule`.
    """
    if "gpu" not in [str(key) for key in target.keys]:
        return program
    from tvm.s_tir import dlight

    with target:
        return dlight.ApplyDefaultSchedule(
            dlight.gpu.Matmul(),
            dlight.gpu.GEMV(),
            dlight.gpu.Reduction(),
            dlight.gpu.GeneralReduction(),
            dlight.gpu.Fallback(),
        )(program)
