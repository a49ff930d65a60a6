"""Attention in strips: every tile is right, and no kernel keeps all scores in memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from cpu_tiles import built_tiles, check_tiles, sketched
from gpu_products import SPACE as GPU_SPACE
from gpu_products import TARGET as GPU_TARGET

from autotune.compiler.formulations import formulations
from autotune.compiler.opencl_c.opencl_source import improved_source
from autotune.compiler.rules.rules import cuts
from autotune.workloads import max_relative_error, parse_kernel, random_inputs, reference

SPECS = [
    "attention:b=2,t=7,s=9,h=4,g=2,d=8,causal=1",
    "attention:b=2,t=13,s=13,h=4,g=1,d=24,mask=2x1",
    "attention:b=3,t=20,s=40,h=2,g=2,d=16,mask=3x2,same_for_all=1",
    "attention:b=1,t=70,s=70,h=2,g=1,d=8,causal=1",
]
ROLES = ["forward", "data_grad", "weight_grad"]


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("spec", SPECS)
def test_every_tile_of_a_processor_is_right(spec: str, role: str, exhaustive: bool) -> None:
    check_tiles(spec, role, "strips", 24 if exhaustive else 2, threads=role != "data_grad")


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("spec", SPECS)
def test_every_tile_of_a_work_group_is_right(spec: str, role: str, exhaustive: bool) -> None:
    kernel = parse_kernel(spec, role)
    _, tiles, sketches = sketched(kernel, "group_strips", GPU_SPACE)
    inputs = random_inputs(kernel, 1)
    wanted = reference(kernel, inputs)
    device = tvm.device("opencl", 0)
    drawn = list(tiles.drawn(12 if exhaustive else 2))
    assert drawn
    for tile in drawn:
        program = sketches.schedule(tile).mod
        with improved_source(program):
            run = tvm.compile(program, GPU_TARGET)["main"]
        found = [np.zeros(spec.shape, np.float32) for spec in kernel.outputs]
        operands = [
            tvm.runtime.tensor(np.asarray(a, np.float32), device) for a in [*inputs, *found]
        ]
        run(*operands)
        for operand, result in zip(operands[len(inputs) :], wanted, strict=True):
            assert max_relative_error(operand.numpy(), result) < 1e-5, tile


@pytest.mark.parametrize("role", ROLES)
def test_no_kernel_keeps_all_scores(role: str) -> None:
    """Of 3 x 64 x 64 scores, a strip of at most 32 rows is in memory."""
    kernel = parse_kernel("attention:b=1,t=64,s=64,h=3,g=3,d=8", role)
    _, tiles, sketches = sketched(kernel, "strips")
    for tile in tiles.drawn(4):
        if tile.strip > 32:
            continue
        sizes = _allocated(sketches.schedule(tile).mod)
        assert max(sizes) <= 2 * 32 * 64, tile


def _allocated(module: Any) -> list[int]:
    """Elements of each buffer that a scheduled program allocates."""
    from tvm.s_tir import transform

    for one in (
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.CompactBufferAllocation(),
    ):
        module = one(module)
    found = re.findall(r"alloc_buffer\(\(([0-9, ]+)\)", module.script())
    assert found
    return [int(np.prod([int(n) for n in shape.split(",") if n.strip()])) for shape in found]


def test_rows_that_no_local_memory_holds_have_no_strips() -> None:
    kernel = parse_kernel("attention:b=1,t=16384,s=16384,h=1,g=1,d=8", "forward")
    (strips,) = formulations(kernel, ["group_strips"])
    assert not cuts(GPU_SPACE, kernel, strips)


@pytest.mark.parametrize("role", ROLES)
def test_a_query_that_sees_no_key_gives_zeros(role: str) -> None:
    kernel = parse_kernel("attention:b=1,t=6,s=9,h=2,g=1,d=8,mask=1x1", role)
    inputs = random_inputs(kernel, 1)
    inputs[3][0, 0, 2] = -np.inf
    if role != "forward":
        inputs[4][0, :, 2] = 0.0
    wanted = reference(kernel, inputs)
    for _, _, library in built_tiles(kernel, "strips", 2):
        found = [np.full(spec.shape, np.nan, np.float32) for spec in kernel.outputs]
        operands = [tvm.runtime.tensor(np.asarray(a, np.float32)) for a in [*inputs, *found]]
        library["main"](*operands)
        for operand, result in zip(operands[len(inputs) :], wanted, strict=True):
            np.testing.assert_allclose(operand.numpy(), result, rtol=1e-5, atol=1e-6)
    if role == "forward":
        assert not wanted[0][0, 2].any()
        assert not wanted[1][0, :, 2].any()
