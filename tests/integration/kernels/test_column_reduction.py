"""Sums over rows on this host's processor: every tile gives the reference's result."""

from __future__ import annotations

import pytest
from cpu_tiles import SPACE, check_tiles

from autotune.compiler.formulations import formulations
from autotune.workloads import parse_kernel


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
    (only,) = SPACE.preferred(formulations(kernel, None, {rule.kind for rule in SPACE.rules}))
    check_tiles(spec, role, only.name, 100, threads=threads)


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
