"""Tiles: the decisions of our own schedule rules, as plain numbers. No TVM here.

Each module has the tiles of one rule: what can be drawn and changed, what fits a device, and features for the cost model."""

from autotune.compiler.tiles.few_channel_tiles import LAYER_DECISIONS, Layer, LayerTile, LayerTiles
from autotune.compiler.tiles.product_tiles import (
    BANKS,
    EACH,
    FLAGS,
    OWN,
    PADDING,
    SHARED,
    SHARES,
    Product,
    ProductTile,
    ProductTiles,
)
from autotune.compiler.tiles.register_tiles import (
    REGISTER_DECISIONS,
    RegisterTile,
    RegisterTiles,
    Sums,
)
from autotune.compiler.tiles.row_tiles import ROW_DECISIONS, Rows, RowTile, RowTiles
from autotune.compiler.tiles.tile_space import Tile, TileSpace, dividing, names_of
from autotune.compiler.tiles.vector_row_tiles import (
    VECTOR_ROW_DECISIONS,
    Planes,
    VectorRowTile,
    VectorRowTiles,
)
from autotune.compiler.tiles.window_tiles import WINDOW_DECISIONS, Window, WindowTile, WindowTiles

__all__ = [
    "BANKS",
    "dividing",
    "EACH",
    "FLAGS",
    "Layer",
    "LAYER_DECISIONS",
    "LayerTile",
    "LayerTiles",
    "names_of",
    "OWN",
    "PADDING",
    "Planes",
    "Product",
    "ProductTile",
    "ProductTiles",
    "REGISTER_DECISIONS",
    "RegisterTile",
    "RegisterTiles",
    "ROW_DECISIONS",
    "Rows",
    "RowTile",
    "RowTiles",
    "SHARED",
    "SHARES",
    "Sums",
    "Tile",
    "TileSpace",
    "VECTOR_ROW_DECISIONS",
    "VectorRowTile",
    "VectorRowTiles",
    "Window",
    "WINDOW_DECISIONS",
    "WindowTile",
    "WindowTiles",
]
