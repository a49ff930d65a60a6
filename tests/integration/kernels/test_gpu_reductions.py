"""Reductions over the work-items of a work-group: every item reaches every barrier."""

from __future__ import annotations

import re

import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches, tiles_of
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import Kernel, parse_operator

SPEC = "conv2d:n=2,c=4,h=16,w=16,k=4,r=3,s=3,stride=1,pad=1,groups=4"


def test_no_barrier_is_in_a_branch_that_some_items_do_not_take() -> None:
    """With a sub-group size in its target, TVM 0.27 puts barriers there, and an NVIDIA GPU hangs."""
    spec = find("opencl")
    limits = spaces.Limits(sub_group_size=32)
    space = spaces.load(spec.space_path()).model_copy(update={"limits": limits})
    kernel = Kernel(parse_operator(SPEC), "weight_grad")
    (windows,) = (one for one in formulations(kernel) if one.name == "windows")
    rule = tile_rule(space, windows.rule)
    module = tvm.IRModule({"main": prim_func(kernel, windows)})
    sketches = Sketches(rule, module)
    (tile,) = tiles_of(rule, module, seed=3).drawn(1)
    built = tvm.compile(sketches.schedule(tile).mod, tvm_target(spec, limits))
    source = str(built.mod.imports[0].inspect_source())
    assert "barrier" in source
    branches = re.findall(r"if \([^{]*get_local_id[^{]*\{([^}]*)\}", source)
    assert branches
    assert not [branch for branch in branches if "barrier" in branch]
