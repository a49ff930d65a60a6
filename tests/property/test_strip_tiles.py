"""Tiles of attention: whatever is drawn or changed divides its strips, and fits local memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.target.spaces import AttentionStrips, GroupAttention, Limits
from autotune.compiler.tiles.strip_tiles import GroupTile, GroupTiles, Strips, StripTile, StripTiles

STRIPS = st.builds(
    Strips,
    heads=st.integers(1, 64),
    shared=st.just(1),
    rows=st.integers(1, 128).map(lambda n: 4 * n),
    columns=st.integers(1, 32).map(lambda n: 16 * n),
    depth=st.integers(1, 16).map(lambda n: 8 * n),
    products=st.integers(1, 2),
    results=st.integers(1, 2),
)


def _check(tile: StripTile | GroupTile, strips: Strips) -> None:
    assert strips.rows % tile.strip == 0
    assert tile.strip % tile.rows == tile.strip % tile.result_rows == 0
    assert strips.columns % tile.lanes == strips.columns % tile.result_steps == 0
    assert strips.depth % tile.steps == strips.depth % tile.result_lanes == 0


@given(STRIPS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_tiles_of_a_processor_divide_strips(strips: Strips, seed: int) -> None:
    tiles = StripTiles(strips, AttentionStrips(kind="attention"), seed)
    drawn = list(tiles.drawn(20))
    assert drawn
    check_drawn(tiles, drawn, lambda tile: _check(tile, strips))


@given(STRIPS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_tiles_of_a_work_group_fit_its_memory(strips: Strips, seed: int) -> None:
    limits = Limits()
    tiles = GroupTiles(strips, GroupAttention(kind="group_attention"), limits, seed)

    def check(tile: GroupTile) -> None:
        _check(tile, strips)
        row = 4 * tile.strip * strips.columns * max(strips.results, 3 - strips.products)
        assert row < limits.max_local_memory_bytes
        own = tile.items * tile.rows * tile.lanes
        assert tile.strip * strips.columns % own == 0

    drawn = list(tiles.drawn(20))
    shortest = 16 * strips.columns * max(strips.results, 3 - strips.products)
    assert drawn or shortest > limits.max_local_memory_bytes / 2
    check_drawn(tiles, drawn, check)
