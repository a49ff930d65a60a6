"""Tiles of depthwise kernels: whatever is drawn or changed divides the planes and fits the device."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.target.spaces import Depthwise, Limits
from autotune.compiler.tiles.depthwise_tiles import DepthwiseTile, DepthwiseTiles, Window

LIMITS = Limits(max_threads_per_block=256, sub_group_size=32)
RULE = Depthwise(kind="depthwise")
PAIRS = st.tuples(st.integers(1, 2), st.integers(1, 2))

WINDOWS = st.builds(
    Window,
    filters=st.booleans(),
    channels=st.integers(1, 64),
    planes=st.integers(1, 64),
    rows=st.integers(1, 56).map(lambda n: 4 * n),
    columns=st.integers(1, 56).map(lambda n: 4 * n),
    phases=PAIRS,
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=PAIRS,
    dilation=PAIRS,
)


def _check(tile: DepthwiseTile, tiles: DepthwiseTiles) -> None:
    window = tiles.window
    assert window.planes % tile.planes == 0
    assert window.rows % (tile.row_items * tile.rows) == 0
    assert window.columns % (tile.column_items * tile.columns) == 0
    assert tiles.items(tile) <= 256
    own = tile.rows * tile.columns * window.phases[0] * window.phases[1]
    least = tiles.registers(DepthwiseTile(1, 1, 1, 1, 1))
    assert own < tiles.registers(tile) <= max(RULE.most_registers, least)


@given(WINDOWS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_drawn_and_mutated_tiles_divide_the_planes_and_fit(window: Window, seed: int) -> None:
    tiles = DepthwiseTiles(window, RULE, LIMITS, seed)
    drawn = list(tiles.drawn(4))
    assert drawn
    check_drawn(tiles, drawn, lambda tile: _check(tile, tiles))
