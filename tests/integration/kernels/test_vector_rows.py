"""Depthwise convolutions with channels first on this host's processor: every tile gives the reference's result."""

from __future__ import annotations

import pytest
from cpu_tiles import check_tiles

from autotune.compiler.formulations import formulations
from autotune.workloads import parse_kernel

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
def test_every_tile_is_right(spec: str, role: str, *, threads: bool, exhaustive: bool) -> None:
    check_tiles(spec, role, "vector_rows", 12 if exhaustive else 2, threads=threads)


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
