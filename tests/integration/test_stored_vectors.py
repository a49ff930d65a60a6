"""What work-items of tuned OpenCL kernels have beside one another is stored as vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tvm

from autotune.compiler import spaces
from autotune.compiler.export.launches import opencl_program
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_source import improved_source
from autotune.compiler.rules import design_spaces, tile_rule
from autotune.compiler.targets import find, tvm_target
from autotune.compiler.tile_rules import Sketches, tiles_of
from autotune.compiler.vector_stores import group_sizes
from autotune.workloads import parse_kernel

LIMITS = spaces.Limits(max_threads_per_block=256, sub_group_size=32)


def _products(spec: str, role: str, formulation: str) -> tuple[list[Any], Callable[[Any], Any]]:
    """Tiles of a kernel's product, and what schedules one."""
    target = find("opencl")
    space = spaces.load(target.space_path()).model_copy(update={"limits": LIMITS})
    kernel = parse_kernel(spec, role)
    (product,) = formulations(kernel, [formulation])
    rule, module = (
        tile_rule(space, product.rule),
        tvm.IRModule({"main": prim_func(kernel, product)}),
    )
    designs = design_spaces(module, tvm_target(target, LIMITS), space, rule)
    sketches = Sketches(rule, module, designs)
    drawn = [one for one in tiles_of(rule, module, seed=1).drawn(2000) if sketches.has(one)]
    return drawn, lambda tile: sketches.schedule(tile).mod


@pytest.mark.parametrize(
    ("spec", "role", "result"),
    [
        ("matmul:m=64,n=256,k=64", "forward", "y"),
        ("matmul:m=64,n=256,k=64", "weight_grad", "dweight"),
        ("conv2d:n=2,c=16,h=14,w=14,k=32,r=3,s=3,stride=1,pad=1", "forward", "y"),
        ("conv2d:n=2,c=16,h=14,w=14,k=32,r=1,s=1,stride=1,pad=0", "data_grad", "dx"),
        ("conv2d:n=2,c=16,h=14,w=14,k=32,r=1,s=1,stride=1,pad=0+relu.forward:size=12544", "forward", "y"),
    ],
)  # fmt: skip
def test_neighbouring_results_of_a_product_are_stored_as_vectors(
    spec: str, role: str, result: str
) -> None:
    kinds: dict[bool, Any] = {}
    tiles, schedule = _products(spec, role, "gemm")
    for tile in tiles:
        if tile.column_vector in (4, 8) and tile.slices == 1:
            kinds.setdefault(tile.parts > 1, tile)
    assert set(kinds) == {False, True}
    for split, tile in kinds.items():
        program = schedule(tile)
        with improved_source(program, images=False):
            built = tvm.compile(program, tvm_target(find("opencl"), LIMITS))
        source = str(built.mod.imports[0].inspect_source())
        stored = "product_rf" if split else result
        vectors = re.findall(rf"\*\(\(__global float4\*\)\({stored}_ptr \+ ", source)
        assert len(vectors) * 4 == tile.accumulators, tile
        assert not re.search(rf"^ *{stored}_ptr\[", source, re.MULTILINE), tile


@pytest.mark.parametrize("formulation", ["gemm", "winograd_gemm"])
def test_the_sizes_of_groups_are_those_that_are_launched(formulation: str) -> None:
    spec = "conv2d:n=1,c=8,h=14,w=14,k=16,r=3,s=3,stride=1,pad=1"
    tiles, schedule = _products(spec, "forward", formulation)
    kinds = {(tile.parts > 1, tile.slices > 1): tile for tile in tiles}
    assert {split for split, _ in kinds} == {False, True}
    for tile in kinds.values():
        program = schedule(tile)
        built = opencl_program("main", program, tvm_target(find("opencl"), LIMITS))
        launched = {one.function: [*one.group, 1, 1][:3] for one in built.launches}
        sizes = group_sizes(program)["main"]
        named = [
            f"main_kernel_{number}" if number else "main_kernel" for number in range(len(sizes))
        ]
        assert dict(zip(named, sizes, strict=True)) == launched
