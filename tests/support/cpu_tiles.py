"""Runs the tiles of a rule on this host's processor, and compares with the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm

from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.rules.rules import tile_rule
from autotune.compiler.rules.tile_rules import Sketches, TileRule, tile_of, tiles_of
from autotune.compiler.runners.reference_data import TOLERANCE
from autotune.compiler.target import spaces
from autotune.compiler.target.targets import find, tvm_target
from autotune.compiler.tiles.tile_space import TileSpace
from autotune.workloads import Kernel, max_relative_error, parse_kernel, random_inputs, reference

SPEC = find("cpu")
SPACE = spaces.load(SPEC.space_path())


def sketched(
    kernel: Kernel, formulation: str, space: spaces.Space = SPACE
) -> tuple[TileRule, TileSpace[Any], Sketches]:
    """The rule of a formulation, the kernel's tiles and what makes schedules of them."""
    (one,) = formulations(kernel, [formulation], {rule.kind for rule in space.rules})
    rule = tile_rule(space, one.rule)
    module = tvm.IRModule({"main": prim_func(kernel, one)})
    return rule, tiles_of(rule, module, seed=1), Sketches(rule, module)


def built_tiles(
    kernel: Kernel, formulation: str, count: int, space: spaces.Space = SPACE
) -> Iterator[tuple[Any, Any, Any]]:
    """So many tiles, each with its schedule and what is compiled from that."""
    rule, space_of_tiles, sketches = sketched(kernel, formulation, space)
    target = tvm_target(SPEC, None, space.compile)
    tiles = list(space_of_tiles.drawn(count))
    assert tiles
    for tile in tiles:
        schedule = sketches.schedule(tile)
        assert tile_of(rule, schedule.trace) == tile
        yield tile, schedule, tvm.compile(schedule.mod, target)


def check_tiles(
    spec: str,
    role: str,
    formulation: str,
    count: int,
    *,
    threads: bool,
    space: spaces.Space = SPACE,
) -> None:
    """Every one of so many tiles gives the reference's result, and has threads or has none."""
    kernel = parse_kernel(spec, role)
    space = space if threads else space.without_threads()
    inputs = random_inputs(kernel, 1)
    expected = reference(kernel, inputs)
    for tile, schedule, built in built_tiles(kernel, formulation, count, space):
        assert ("T.parallel" in str(schedule.mod)) == threads
        outputs = [
            tvm.runtime.tensor(np.full(array.shape, np.nan, np.float32)) for array in expected
        ]
        built["main"](*map(tvm.runtime.tensor, inputs), *outputs)
        for output, wanted in zip(outputs, expected, strict=True):
            assert max_relative_error(output.numpy(), wanted) < TOLERANCE, tile
