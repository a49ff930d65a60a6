"""Matrix products on an OpenCL GPU, with their schedule sketches."""

from __future__ import annotations

from typing import Any

import tvm

from autotune.compiler.export.launches import opencl_program
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import parse_kernel

LIMITS = spaces.Limits(max_threads_per_block=256, sub_group_size=32)
SPACE = spaces.load(find("opencl").space_path()).model_copy(update={"limits": LIMITS})
TARGET = tvm_target(find("opencl"), LIMITS)


def sketched(
    spec: str, role: str, space: spaces.Space = SPACE, formulation: str = "gemm"
) -> tuple[Any, Any, Sketches]:
    """The rule of a kernel's product in a space, the unscheduled program, and the sketches that there are."""
    kernel = parse_kernel(spec, role)
    (product,) = formulations(kernel, [formulation])
    rule = tile_rule(space, product.rule)
    module = tvm.IRModule({"main": prim_func(kernel, product)})
    return rule, module, Sketches(rule, module)


def launched_groups(program: Any, target: Any = TARGET) -> dict[str, list[int]]:
    """The work-items of a group that a scheduled program launches each kernel in, in three dimensions."""
    launches = opencl_program("main", program, target).launches
    return {one.function: [*one.group, 1, 1][:3] for one in launches}
