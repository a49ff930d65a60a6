"""Kernels of the user's own. Their only formulation is the user's program; `prim_func` returns it."""

from __future__ import annotations

from autotune.compiler.formulations.registry import Tensors, formulation
from autotune.workloads.operators import OwnKernel


@formulation("own", "forward", "direct")
def own(op: OwnKernel, inputs: Tensors) -> Tensors:
    raise AssertionError(f"{op.function} is a program, not a tensor expression")
