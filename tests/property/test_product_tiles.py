"""ProductTiles of products: whatever is drawn or changed divides the product and fits the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.search.cost_model import ScheduleRanker
from autotune.compiler.search.tile_search import TileSearch
from autotune.compiler.target.spaces import ImplicitGemm, Limits
from autotune.compiler.tiles.product_tiles import Product, ProductTile, ProductTiles

LIMITS = Limits(max_threads_per_block=256, max_local_memory_bytes=32768, sub_group_size=1)
RULE = ImplicitGemm(kind="implicit_gemm")

PRODUCTS = st.builds(
    Product,
    rows_along=st.booleans(),
    columns_along=st.booleans(),
    batch=st.integers(1, 4),
    rows=st.integers(1, 64).map(lambda n: 4 * n),
    columns=st.integers(1, 64).map(lambda n: 4 * n),
    depth=st.integers(1, 64).map(lambda n: 4 * n),
)


def _check(tile: ProductTile, product: Product, most_registers: int) -> None:
    assert product.rows % (tile.row_strided * tile.row_items * tile.row_vector) == 0
    assert product.columns % (tile.column_strided * tile.column_items * tile.column_vector) == 0
    assert product.depth % (tile.parts * tile.deep) == 0
    assert tile.deep % (tile.slices * tile.unrolled) == 0
    items = tile.slices * tile.row_items * tile.column_items
    assert items <= 256
    gathered = min(32, product.depth & -product.depth) * min(product.rows, product.columns)
    results = (product.rows & -product.rows) * (product.columns & -product.columns)
    assert items >= min(32, results, gathered)
    assert tile.groups(product) * tile.rows * tile.columns == (
        product.batch * product.rows * product.columns * tile.parts
    )
    if tile.straight:
        assert product.rows <= 16
        assert tile.row_items == 1
        assert tile.staged
        assert not tile.pipelined
    if tile.slices > 1:  # Each work-item adds as many of the results as any other.
        assert product.batch * product.rows * product.columns <= 1 << 18
        assert tile.row_vector * tile.column_vector % tile.slices == 0
        assert 4 * tile.slices * tile.rows * tile.columns <= tile.local_bytes(product)
    assert tile.local_bytes(product) <= 32768
    elements = tile.deep * (tile.rows + (0 if tile.straight else tile.columns))
    own = tile.own_rows + tile.own_columns
    assert tile.own_rows * tile.own_columns + own <= tile.registers <= most_registers
    if not tile.staged:
        assert tile.registers == tile.accumulators + tile.unrolled * own
        assert not tile.pipelined
        apart = tile.row_strided * tile.column_strided
        sums = tile.slices * tile.rows * tile.columns * apart if tile.slices > 1 else 0
        assert tile.local_bytes(product) == 4 * sums
        return
    if tile.pipelined:
        reads = (tile.row_each * tile.row_load, tile.column_each * tile.column_load)
        assert items * sum(reads) == elements
    assert 4 * elements <= tile.local_bytes(product)


@given(
    PRODUCTS,
    st.sampled_from([(True,), (False,), (True, False)]),
    st.sampled_from([64, 192]),
    st.sampled_from([0, 16]),
    st.integers(0, 10**6),
)
@settings(deadline=None, max_examples=40)
def test_drawn_and_mutated_tiles_divide_the_product_and_fit(
    product: Product, staged: tuple[bool, ...], most_registers: int, thin: int, seed: int
) -> None:
    rule = RULE.model_copy(
        update={"staged": staged, "most_registers": most_registers, "thin": thin}
    )
    tiles = ProductTiles(product, rule, LIMITS, seed)
    drawn = list(tiles.drawn(6))
    check_drawn(tiles, drawn, lambda tile: _check(tile, product, most_registers))


@pytest.mark.parametrize("lacking", ["row_items", "loads"])
def test_what_a_tile_settles_is_among_the_choices(lacking: str) -> None:
    """Columns that go straight into registers leave one work-item along the rows, and loads of one column."""
    rule = RULE.model_copy(update={"thin": 16, lacking: (2, 4)})
    product = Product(False, True, batch=1, rows=16, columns=1024, depth=512)
    tiles = ProductTiles(product, rule, LIMITS, 1)
    drawn = list(tiles.drawn(300))
    assert drawn
    for tile in drawn:
        assert all(getattr(tile, name) in values for name, values in tiles.choices.items()), tile


SMALL = Product(False, False, batch=16, rows=16, columns=16, depth=64)


def test_a_plain_local_memory_adds_no_slices() -> None:
    plain = LIMITS.model_copy(update={"local_memory": "global"})
    for limits, there in ((LIMITS, True), (plain, False)):
        drawn = ProductTiles(SMALL, RULE, limits, 1).drawn(200)
        assert any(tile.slices > 1 for tile in drawn) == there


@pytest.mark.parametrize(
    ("product", "tiles_there"),
    [
        (Product(False, False, batch=64, rows=8, columns=4, depth=8), 28),
        (Product(True, True, batch=1, rows=8, columns=12, depth=40), 56),
    ],
)
def test_all_tiles_of_a_small_product_are_found(product: Product, tiles_there: int) -> None:
    """As many as a look at every combination finds. Drawn one decision at a time, hardly any of 20,000 fits."""
    limits = LIMITS.model_copy(update={"sub_group_size": 32})
    assert len(set(ProductTiles(product, RULE, limits, 1).drawn(384))) == tiles_there


@given(PRODUCTS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_the_same_seed_draws_the_same_tiles(product: Product, seed: int) -> None:
    one, other = (list(ProductTiles(product, RULE, LIMITS, seed).drawn(5)) for _ in range(2))
    assert one == other


SQUARE = Product(rows_along=True, columns_along=True, batch=1, rows=1024, columns=1024, depth=1024)


def _seconds(tile: ProductTile) -> float:
    """A made-up device that likes large tiles of many items, and no split of the reduction."""
    return (1 / tile.rows + 1 / tile.columns) * (1 + tile.parts) * (1 + 64 / tile.items)


def _search(seed: int, warmup: int, explore: float = 0.1) -> tuple[TileSearch, ScheduleRanker]:
    ranker = ScheduleRanker(seed=seed, warmup=warmup)
    return TileSearch(ProductTiles(SQUARE, RULE, LIMITS, seed), ranker, explore, seed), ranker


def test_a_search_proposes_nothing_twice() -> None:
    search, _ = _search(seed=3, warmup=10**6)
    proposed = [tile for _ in range(12) for tile in search.propose(8, [])]
    assert len(proposed) == len(set(proposed)) == 96


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_it_has_learnt_makes_its_proposals_faster(seed: int) -> None:
    search, ranker = _search(seed, warmup=24)
    known: list[ProductTile] = []
    for _ in range(12):
        best = sorted(known, key=_seconds)[:24]
        tried = search.propose(8, best)
        known += tried
        ranker.learn("m", [t.features(SQUARE) for t in tried], [_seconds(t) for t in tried])
    at_random = np.median([_seconds(tile) for tile in known[:24]])
    assert np.median([_seconds(tile) for tile in known[-24:]]) < at_random / 3


def test_a_round_has_no_two_tiles_that_differ_in_their_loads_only() -> None:
    """The cost model's favourites are such, and one of them tells it enough."""
    search, ranker = _search(seed=1, warmup=24, explore=0.3)
    known: list[ProductTile] = []
    for _ in range(9):
        tried = search.propose(8, sorted(known, key=_seconds)[:24])
        alike = {replace(tile, unrolled=1, row_load=1, column_load=1) for tile in tried}
        assert len(alike) == len(tried) == 8
        known += tried
        ranker.learn("m", [t.features(SQUARE) for t in tried], [_seconds(t) for t in tried])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 20])
def test_a_round_is_full_and_each_of_its_tiles_has_an_exploration_weight_of_its_own(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    search, ranker = _search(seed=1, warmup=8, explore=0.0)
    tried = search.propose(8, [])
    ranker.learn("m", [t.features(SQUARE) for t in tried], [_seconds(t) for t in tried])
    asked: list[tuple[float, ...]] = []
    plain = ranker.upper_bounds

    def upper_bounds(features: list, weights: tuple[float, ...]) -> np.ndarray:
        asked.append(tuple(weights))
        return plain(features, weights)

    monkeypatch.setattr(ranker, "upper_bounds", upper_bounds)
    assert len(set(search.propose(count, tried))) == count
    if count:
        assert len(asked[-1]) == count
        assert max(map(asked[-1].count, asked[-1])) == -(-count // 8)


def test_a_search_goes_on_where_everything_failed() -> None:
    search, ranker = _search(seed=1, warmup=8)
    for _ in range(3):
        tried = search.propose(8, [])
        assert len(tried) == 8
        ranker.learn("m", [t.features(SQUARE) for t in tried], [float("inf")] * 8)
    assert ranker.version == 0


def test_nothing_goes_through_local_memory_that_is_plain_memory() -> None:
    limits = LIMITS.model_copy(update={"local_memory": "global"})
    drawn = list(ProductTiles(SQUARE, RULE, limits, seed=1).drawn(20))
    assert drawn
    assert not any(tile.staged or tile.pipelined or tile.half for tile in drawn)


def test_what_is_packed_in_half_precision_is_no_image() -> None:
    """A view of floats would be of halves."""
    limits = LIMITS.model_copy(update={"local_memory": "global", "image_buffer_max": 65536})
    rule = RULE.model_copy(update={"half": (False, True), "images": (False, True)})
    drawn = list(ProductTiles(SQUARE, rule, limits, seed=1).drawn(200))
    assert {tile.half for tile in drawn} == {False, True}
    assert {tile.row_image or tile.column_image for tile in drawn if tile.half} == {False}


def test_slices_share_no_operands_in_half_precision() -> None:
    """Their sums would lie where operands were."""
    rule = RULE.model_copy(update={"half": (False, True), "staged": (True, False)})
    drawn = list(ProductTiles(SMALL, rule, LIMITS, seed=1).drawn(400))
    assert {tile.half for tile in drawn if tile.slices > 1} == {False}
    assert {tile.half for tile in drawn if tile.slices == 1} == {False, True}


def test_a_transform_in_half_precision_has_no_parts_to_be_added() -> None:
    """Their sum would lie where the transform was."""
    rule = RULE.model_copy(update={"half": (False, True)})
    transformed = replace(SMALL, transformed=True)
    drawn = list(ProductTiles(transformed, rule, LIMITS, seed=1).drawn(400))
    assert {tile.half for tile in drawn if tile.parts > 1} == {False}
    assert {tile.half for tile in drawn if tile.parts == 1} == {False, True}


def test_tiles_in_half_precision_fit_only_where_they_are_asked_for() -> None:
    """Those of records too: their results may be off by more."""
    asked, plain = (
        ProductTiles(SQUARE, RULE.model_copy(update={"half": half}), LIMITS, seed=1)
        for half in ((False, True), (False,))
    )
    drawn = [tile for tile in asked.drawn(100) if tile.half]
    assert drawn
    assert all(asked.fits(tile) and not plain.fits(tile) for tile in drawn)
    assert all(plain.fits(replace(tile, half=False)) for tile in drawn)


def test_columns_go_straight_into_registers_beside_few_rows_only() -> None:
    rule = RULE.model_copy(update={"thin": 16})

    def straight(rows: int) -> set[bool]:
        product = Product(False, False, batch=1, rows=rows, columns=4096, depth=1024)
        return {tile.straight for tile in ProductTiles(product, rule, LIMITS, seed=1).drawn(200)}

    assert straight(12) == {False, True}
    assert straight(64) == {False}


@pytest.mark.parametrize("columns", [4, 12, 20])
def test_a_product_too_small_for_a_usual_work_group_has_smaller_ones(columns: int) -> None:
    tiny = Product(rows_along=True, columns_along=False, batch=1, rows=4, columns=columns, depth=4)
    limits = LIMITS.model_copy(update={"sub_group_size": 32})
    assert {tile.items for tile in ProductTiles(tiny, RULE, limits, seed=1).drawn(3)} == {16}
