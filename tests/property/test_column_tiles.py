"""Tiles of sums over rows: whatever is drawn or changed divides columns and rows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_checks import check_drawn

from autotune.compiler.target.spaces import ColumnReduction
from autotune.compiler.tiles.column_tiles import ColumnTile, ColumnTiles, Rows

RULE = ColumnReduction(kind="row_sums")
ROWS = st.builds(
    Rows,
    blocks=st.integers(1, 256),
    sums=st.integers(1, 2),
    columns=st.integers(1, 2048),
    rows=st.integers(1, 4096),
)


def _check(tile: ColumnTile, rows: Rows) -> None:
    assert rows.columns % tile.columns == 0
    assert rows.rows % tile.unrolled == 0
    assert tile.columns == 1 or tile.columns in RULE.columns
    assert tile.unrolled in RULE.unrolled


@given(ROWS, st.integers(0, 10**6))
@settings(deadline=None, max_examples=60)
def test_drawn_and_mutated_tiles_divide_columns_and_rows(rows: Rows, seed: int) -> None:
    tiles = ColumnTiles(rows, RULE, seed)
    drawn = list(tiles.drawn(20))
    assert drawn
    assert len(drawn) == len(set(drawn))
    check_drawn(tiles, drawn, lambda tile: _check(tile, rows))
