"""Tiles of convolutions of few channels: whatever is drawn or changed divides the layer and fits the device."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.target.spaces import FewChannels, Limits
from autotune.compiler.tiles.few_channel_tiles import Layer, LayerTile, LayerTiles

RULE = FewChannels(kind="few_channels")
LIMITS = st.builds(
    Limits,
    max_threads_per_block=st.just(256),
    sub_group_size=st.sampled_from([16, 32, 64]),
    local_memory=st.sampled_from(["local", "global"]),
)
POSITIONS = st.integers(1, 56).map(lambda n: 4 * n)
STEPS = st.tuples(st.integers(1, 4), st.integers(1, 4))
WINDOWS = st.tuples(st.integers(1, 12), st.integers(1, 12))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    gradient = draw(st.booleans())
    window, steps = draw(WINDOWS), draw(STEPS)
    wide = (window[0] * steps[0], window[1] * steps[1])
    return Layer(
        gradient=gradient,
        images=draw(st.integers(1, 16)),
        channels=draw(st.integers(1, 4)) if gradient else 4 * draw(st.integers(1, 32)),
        rows=draw(POSITIONS),
        columns=draw(POSITIONS),
        phases=steps if gradient else (1, 1),
        summed=draw(st.integers(1, 128)) if gradient else draw(st.integers(1, 4)),
        window=window,
        taps=wide if gradient else window,
        stride=(1, 1) if gradient else steps,
    )


def _check(tile: LayerTile, tiles: LayerTiles, limits: Limits) -> None:
    layer = tiles.layer
    assert layer.channels % (tile.channels * tile.channel_items) == 0
    assert layer.rows % (tile.row_items * tile.rows) == 0
    assert layer.columns % (tile.column_items * tile.columns) == 0
    assert layer.summed % tile.deep == 0
    assert tile.items <= 256
    assert tiles.staged == (limits.local_memory == "local")
    assert tiles.local_bytes(tile) <= limits.max_local_memory_bytes
    fewest = 1 if layer.gradient else min(n for n in RULE.channels if layer.channels % n == 0)
    least = tiles.registers(LayerTile(fewest, 1, 1, 1, 1, 1, 1))
    assert tiles.results(tile) < tiles.registers(tile) <= max(RULE.most_registers, least)
    assert tile.channels % tiles.vector == 0 or layer.gradient


@given(layers(), LIMITS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_drawn_and_mutated_tiles_divide_the_layer_and_fit(
    layer: Layer, limits: Limits, seed: int
) -> None:
    tiles = LayerTiles(layer, RULE, limits, seed)
    drawn = list(tiles.drawn(4))
    assert drawn
    check_drawn(tiles, drawn, lambda tile: _check(tile, tiles, limits))
