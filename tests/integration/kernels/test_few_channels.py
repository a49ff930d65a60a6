"""Convolutions of images of few channels as OpenCL source: what a work-item multiplies, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches, tile_of, tiles_of
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find, tvm_target
from autotune.workloads import parse_kernel

FIRST_LAYER = "conv2d:n=2,c=3,h=32,w=32,k=16,r=7,s=7,stride=2,pad=3"
MULTIPLY_ADD = re.compile(r"(window_local_ptr\[\d+\]) = \(\1 \+ ")


def _sources(target_name: str, spec: str, role: str, limits: spaces.Limits, count: int) -> Any:
    """Tiles, with the space that drew them and the source of their kernels."""
    spec_of = find(target_name)
    space = spaces.load(spec_of.space_path()).model_copy(update={"limits": limits})
    kernel = parse_kernel(spec, role)
    (one,) = formulations(kernel, ["few_channels"], {rule.kind for rule in space.rules})
    rule, target = tile_rule(space, one.rule), tvm_target(spec_of, limits)
    module = tvm.IRModule({"main": prim_func(kernel, one)})
    tiles = tiles_of(rule, module, seed=1)
    sketches = Sketches(rule, module)
    for tile in tiles.drawn(count):
        schedule = sketches.schedule(tile)
        assert tile_of(rule, schedule.trace) == tile
        with improved_source(schedule.mod, images=False):
            built = tvm.compile(schedule.mod, target)
        yield tiles, tile, built.mod.imports[0].inspect_source()


@pytest.mark.parametrize("role", ["forward", "data_grad"])
def test_no_tap_is_multiplied_that_a_pixel_does_not_have(role: str) -> None:
    made = list(_sources("opencl", FIRST_LAYER, role, spaces.Limits(), 6))
    assert len(made) == 6
    for tiles, tile, source in made:
        assert len(MULTIPLY_ADD.findall(source)) == tiles.multiplied(tile), tile


@pytest.mark.parametrize("memory", ["local", "global"])
def test_taps_go_through_local_memory_where_that_is_real(memory: Any) -> None:
    limits = spaces.Limits(local_memory=memory)
    made = list(_sources("adreno", FIRST_LAYER, "data_grad", limits, 3))
    assert len(made) == 3
    for tiles, tile, source in made:
        assert tiles.staged == ("__local float" in source) == (memory == "local"), tile


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:n=1,c=8,h=16,w=16,k=8,r=3,s=3,stride=2,pad=1",
        "conv2d:n=1,c=3,h=16,w=16,k=6,r=3,s=3,stride=1,pad=1,groups=3",
        "conv2d:n=1,c=3,h=16,w=16,k=8,r=3,s=3,stride=1,pad=1,channels_last=1",
        "conv2d:n=1,c=3,h=16,w=16,k=8,r=3,s=3,stride=1,pad=2,dilation=2",
    ],
)
def test_other_convolutions_have_none_of_it(spec: str) -> None:
    for role in ("forward", "data_grad"):
        assert all(one.rule != "few_channels" for one in formulations(parse_kernel(spec, role)))
