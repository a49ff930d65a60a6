from .few_channel_tiles import LAYER_DECISIONS, Layer, LayerTile, LayerTiles
from .product_tiles import (
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
from .register_tiles import REGISTER_DECISIONS, RegisterTile, RegisterTiles, Sums
from .row_tiles import ROW_DECISIONS, Rows, RowTile, RowTiles
from .tile_space import Tile, TileSpace, dividing, names_of
from .vector_row_tiles import VECTOR_ROW_DECISIONS, Planes, VectorRowTile, VectorRowTiles
from .window_tiles import WINDOW_DECISIONS, Window, WindowTile, WindowTiles

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
