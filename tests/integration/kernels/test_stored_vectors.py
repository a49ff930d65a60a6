"""What work-items of tuned OpenCL kernels have beside one another is stored as vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from gpu_products import TARGET, launched_groups, sketched

from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.opencl_c.vector_stores import group_sizes
from autotune.compiler.rules.tile_rules import tiles_of


def _products(spec: str, role: str, formulation: str) -> tuple[list[Any], Callable[[Any], Any]]:
    """Tiles of a kernel's product, and what schedules one."""
    rule, module, sketches = sketched(spec, role, formulation=formulation)
    return [*tiles_of(rule, module, seed=1).drawn(2000)], lambda tile: sketches.schedule(tile).mod


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
            built = tvm.compile(program, TARGET)
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
        assert group_sizes(program) == launched_groups(program)
