"""Concatenation with channels last on this host's processor: every tile gives the reference's result."""

from __future__ import annotations

import pytest
from cpu_tiles import SPACE, built_tiles, check_tiles

from autotune.compiler.formulations import formulations
from autotune.workloads import parse_kernel

KINDS = {rule.kind for rule in SPACE.rules}
TWO = "concat:n=2,c1=16,c2=32,s=15,channels_last=1"


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize(
    "spec",
    [
        TWO,
        "concat:n=1,c1=8,c2=24,c3=8,s=7,channels_last=1",
        "concat:n=2,c1=48,c2=64,c3=16,c4=32,s=9,channels_last=1",
        f"{TWO}+dropout.forward:size=1440",
    ],
)
def test_every_tile_is_right(spec: str, *, threads: bool) -> None:
    kernel = parse_kernel(spec, "forward")
    (only,) = SPACE.preferred(formulations(kernel, None, KINDS))
    assert only.rule == "joined_parts"
    check_tiles(spec, "forward", only.name, 10, threads=threads)


def test_which_part_a_channel_is_of_is_asked_once_a_vector() -> None:
    kernel = parse_kernel(TWO, "forward")
    for tile, _, built in built_tiles(kernel, "joined_parts", 10):
        code = built.mod.inspect_source("ll")
        assert f"load <{tile.lanes} x float>" in code
        assert f"<{tile.lanes} x i1>" not in code  # A vector's condition.


@pytest.mark.parametrize(
    "spec",
    [
        "concat:n=2,c1=16,c2=20,s=15,channels_last=1",
        "concat:n=2,c1=16,c2=32,s=15",
    ],
)
def test_parts_that_fill_no_vector_and_channels_first_are_joined_otherwise(spec: str) -> None:
    known = formulations(parse_kernel(spec, "forward"), None, KINDS)
    assert [one.name for one in known] == ["direct"]
