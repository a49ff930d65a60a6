"""What work-items of tuned OpenCL kernels have beside one another is stored as vectors."""

from __future__ import annotations

import re

import pytest
import tvm

from autotune.compiler import spaces
from autotune.compiler.formulations import formulations, prim_func
from autotune.compiler.opencl_source import improved_source
from autotune.compiler.rules import design_spaces, tile_rule
from autotune.compiler.targets import find, tvm_target
from autotune.compiler.tile_rules import Sketches, tiles_of
from autotune.workloads import parse_kernel

LIMITS = spaces.Limits(max_threads_per_block=256, sub_group_size=32)


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
    target = find("opencl")
    space = spaces.load(target.space_path()).model_copy(update={"limits": LIMITS})
    kernel = parse_kernel(spec, role)
    (product,) = (one for one in formulations(kernel) if one.name == "gemm")
    rule, module = (
        tile_rule(space, product.rule),
        tvm.IRModule({"main": prim_func(kernel, product)}),
    )
    sketches = Sketches(
        rule, module, design_spaces(module, tvm_target(target, LIMITS), space, rule)
    )
    kinds: dict[bool, object] = {}
    for tile in tiles_of(rule, module, seed=1).drawn(2000):
        if tile.column_vector in (4, 8) and tile.slices == 1 and sketches.has(tile):
            kinds.setdefault(tile.parts > 1, tile)
    assert set(kinds) == {False, True}
    for split, tile in kinds.items():
        program = sketches.schedule(tile).mod
        with improved_source(program, images=False):
            source = str(
                tvm.compile(program, tvm_target(target, LIMITS)).mod.imports[0].inspect_source()
            )
        stored = "product_rf" if split else result
        vectors = re.findall(rf"\*\(\(__global float4\*\)\({stored}_ptr \+ ", source)
        assert len(vectors) * 4 == tile.accumulators, tile
        assert not re.search(rf"^ *{stored}_ptr\[", source, re.MULTILINE), tile
