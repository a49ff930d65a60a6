"""Sums over rows on this host's processor: every tile gives the reference's result."""

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


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    ("spec", "role"),
    [
        ("batch_stats:n=2,c=32,s=98,channels_last=1", "forward"),
        ("batch_stats:n=3,c=8,s=7,channels_last=1", "forward"),
        ("batch_norm:n=2,c=24,s=50,relu6=1,channels_last=1", "weight_grad"),
        ("batch_norm:n=1,c=40,s=13,channels_last=1", "weight_grad"),
        ("bias:n=2,c=16,s=20,relu=1,channels_last=1", "weight_grad"),
        ("bias:n=2,c=24,s=9,relu=0,channels_last=1+sgd.update:size=24", "weight_grad"),
        ("bias:n=2,c=8,s=9,relu=0,channels_last=1+momentum.update:size=8", "weight_grad"),
        ("bias:n=2,c=8,s=9,relu=0,channels_last=1+adam.update:size=8", "weight_grad"),
    ],
)
def test_every_tile_is_right(spec: str, role: str, *, threads: bool) -> None:
    kernel = parse_kernel(spec, role)
    space = SPACE if threads else SPACE.without_threads()
    (one,) = space.preferred(formulations(kernel, None, {rule.kind for rule in space.rules}))
    rule = tile_rule(space, one.rule)
    target = tvm_target(SPEC, None, space.compile)
    module = tvm.IRModule({"main": prim_func(kernel, one)})
    sketches = Sketches(rule, module, design_spaces(module, target, space, rule))
    inputs = random_inputs(kernel, 1)
    expected = reference(kernel, inputs)
    tiles = list(tiles_of(rule, module, seed=1).drawn(100))
    assert tiles
    for tile in tiles:
        schedule = sketches.schedule(tile)
        assert tile_of(rule, schedule.trace) == tile
        assert ("T.parallel" in str(schedule.mod)) == threads
        built = tvm.compile(schedule.mod, target)
        outputs = [
            tvm.runtime.tensor(np.full(array.shape, np.nan, np.float32)) for array in expected
        ]
        built["main"](*map(tvm.runtime.tensor, inputs), *outputs)
        for output, wanted in zip(outputs, expected, strict=True):
            assert max_relative_error(output.numpy(), wanted) < TOLERANCE, tile


@pytest.mark.parametrize(
    ("spec", "role"),
    [
        ("batch_stats:n=4,c=10,s=64,channels_last=1", "forward"),
        ("batch_norm:n=4,c=6,s=64,channels_last=1", "weight_grad"),
        ("bias:n=4,c=6,s=64,relu=1,channels_last=1", "weight_grad"),
    ],
)
def test_channels_that_fill_no_vector_are_summed_otherwise(spec: str, role: str) -> None:
    kernel = parse_kernel(spec, role)
    known = formulations(kernel, None, {rule.kind for rule in SPACE.rules})
    assert known
    assert all(one.rule != "row_sums" for one in known)
