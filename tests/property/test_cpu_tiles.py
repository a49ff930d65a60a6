"""Tiles of products, depthwise planes and joined parts on a CPU: what is drawn or changed divides what it cuts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.rules.concat import ConcatTiles
from autotune.compiler.target.spaces import RegisterProduct, VectorConcat, VectorRows
from autotune.compiler.tiles.register_tiles import RegisterTile, RegisterTiles, Sums
from autotune.compiler.tiles.vector_row_tiles import Planes, VectorRowTile, VectorRowTiles

PRODUCT = RegisterProduct(kind="register_product")
ROWS = VectorRows(kind="vector_rows")


def _sums(most: int, columns: int) -> st.SearchStrategy[Sums]:
    """Products of at most so many rows, in so many vectors of columns."""
    return st.builds(
        lambda outer, stacked, rows, columns, depth, around: Sums(
            outer * stacked, rows, 8 * columns, depth, around, stacked, columns <= 2
        ),
        st.integers(1, 16), st.integers(1, 4), st.integers(1, most), st.integers(1, columns),
        st.integers(1, 16 * most), st.integers(1, 49),
    )  # fmt: skip


SUMS = _sums(256, 512)
SMALL = _sums(3, 2)
PLANES = st.builds(
    Planes,
    planes=st.integers(1, 4096),
    rows=st.integers(1, 224),
    columns=st.integers(1, 60).map(lambda vectors: 4 * vectors),
    phases=st.sampled_from([1, 4, 9]),
    taps=st.sampled_from([1, 9, 25, 49]),
)


def _fits(tiles: RegisterTiles, tile: RegisterTile, sums: Sums) -> None:
    assert sums.stacked % tile.stack == 0
    assert sums.rows % tile.rows == 0
    assert sums.columns % tile.lanes == 0
    assert sums.around % tile.parts == 0
    assert sums.depth % (tile.cuts * tile.steps) == 0
    assert tile.lanes % tile.vector == 0
    if tile.parted:
        assert tiles.steps_of_a_part(tile) >= PRODUCT.fewest_steps
    assert tiles.tiles(tile) % tile.jobs == 0
    assert tile.results <= PRODUCT.most_accumulators
    assert tile.results * tile.steps <= PRODUCT.most_unrolled


@given(SUMS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_tiles_of_products_divide_them(sums: Sums, seed: int) -> None:
    tiles = RegisterTiles(sums, PRODUCT, seed)
    check_drawn(tiles, list(tiles.drawn(20)), lambda tile: _fits(tiles, tile, sums))


@given(SMALL, st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_of_tiles_that_can_all_be_looked_at_none_is_drawn_twice(sums: Sums, seed: int) -> None:
    drawn = list(RegisterTiles(sums, PRODUCT, seed).drawn(20))
    assert len(drawn) == len(set(drawn))


@given(SUMS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_without_threads_every_product_has_tiles(sums: Sums, seed: int) -> None:
    tiles = RegisterTiles(sums, PRODUCT.model_copy(update={"threads": False}), seed)
    drawn = list(tiles.drawn(20))
    assert drawn
    assert {tile.jobs for tile in drawn} == {1}


def _cuts(tile: VectorRowTile, planes: Planes) -> None:
    assert planes.planes % tile.jobs == 0
    assert planes.rows % tile.rows == 0
    assert planes.columns % tile.lanes == 0


@given(PLANES, st.booleans(), st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_tiles_of_planes_divide_them(planes: Planes, threads: bool, seed: int) -> None:
    tiles = VectorRowTiles(planes, ROWS.model_copy(update={"threads": threads}), seed)
    drawn = list(tiles.drawn(20))
    assert drawn
    assert len(drawn) == len(set(drawn))
    check_drawn(tiles, drawn, lambda tile: _cuts(tile, planes))
    if not threads:
        assert {tile.jobs for tile in drawn} == {1}


@given(st.integers(1, 64).map(lambda vectors: 8 * vectors), st.integers(1, 10**6))
@settings(deadline=None, max_examples=60)
def test_no_vector_has_channels_of_two_parts(common: int, pixels: int) -> None:
    tiles = ConcatTiles(pixels, 3 * common, common, VectorConcat(kind="joined_parts"), seed=1)
    drawn = list(tiles.drawn(20))
    assert drawn
    check_drawn(tiles, drawn, lambda tile: common % tile.lanes == 0)
