"""Depthwise convolutions with channels first on this host's processor: every tile gives the reference's result."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from autotune.compiler import spaces
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.reference_data import TOLERANCE
from autotune.compiler.rules import design_spaces, tile_rule
from autotune.compiler.targets import find, tvm_target
from autotune.compiler.tile_rules import Sketches, tile_of, tiles_of
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

SPEC = find("cpu")
SPACE = spaces.load(SPEC.space_path())


ROLES = ("forward", "data_grad")
SPECS = (
    "conv2d:n=2,c=6,h=14,w=14,k=6,r=3,s=3,stride=1,pad=1,groups=6",
    "conv2d:n=1,c=4,h=9,w=13,k=4,r=3,s=5,stride=1,pad=2,groups=4",
    "conv2d:n=2,c=4,h=15,w=16,k=4,r=3,s=3,stride=2,pad=1,groups=4",
    "conv2d:n=1,c=3,h=20,w=17,k=3,r=7,s=7,stride=3,pad=3,groups=3",
    "conv2d:n=1,c=3,h=7,w=5,k=3,r=3,s=3,stride=1,pad=0,groups=3",
    "conv2d:n=2,c=2,h=6,w=6,k=2,r=1,s=1,stride=2,pad=0,groups=2",
)
FOLLOWED = (
    (f"{SPECS[0]}+bias.forward:n=2,c=6,s=196,relu=1", "forward"),
    (f"{SPECS[2]}+bias.forward:n=2,c=4,s=64,relu=0", "forward"),
    (f"{SPECS[0]}+relu.data_grad:size=2352", "data_grad"),
    (f"{SPECS[2]}+relu.data_grad:size=1920", "data_grad"),
)


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    ("spec", "role"), [*((spec, role) for spec in SPECS for role in ROLES), *FOLLOWED]
)
def test_every_tile_is_right(spec: str, role: str, *, threads: bool) -> None:
    kernel = parse_kernel(spec, role)
    space = SPACE if threads else SPACE.without_threads()
    (one,) = formulations(kernel, ["vector_rows"], {rule.kind for rule in space.rules})
    rule = tile_rule(space, one.rule)
    target = tvm_target(SPEC, None, space.compile)
    module = tvm.IRModule({"main": prim_func(kernel, one)})
    sketches = Sketches(rule, module, design_spaces(module, target, space, rule))
    inputs = random_inputs(kernel, 1)
    (expected,) = reference(kernel, inputs)
    tiles = list(tiles_of(rule, module, seed=1).drawn(12))
    assert tiles
    for tile in tiles:
        schedule = sketches.schedule(tile)
        assert tile_of(rule, schedule.trace) == tile
        assert ("T.parallel" in str(schedule.mod)) == threads
        built = tvm.compile(schedule.mod, target)
        output = tvm.runtime.tensor(np.full(expected.shape, np.nan, np.float32))
        built["main"](*map(tvm.runtime.tensor, inputs), output)
        assert max_relative_error(output.numpy(), expected) < TOLERANCE, tile


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:n=2,c=6,h=14,w=14,k=6,r=3,s=3,stride=1,pad=1,groups=6,channels_last=1",
        "conv2d:n=2,c=6,h=14,w=14,k=6,r=3,s=3,stride=1,pad=1,groups=3",
        "conv2d:n=2,c=6,h=14,w=14,k=6,r=3,s=3,stride=1,pad=1",
    ],
)
def test_other_convolutions_have_no_such_rows(spec: str) -> None:
    kernel = parse_kernel(spec, "forward")
    assert all(one.rule != "vector_rows" for one in formulations(kernel))
