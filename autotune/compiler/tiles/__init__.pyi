from .column_tiles import ROW_DECISIONS, ColumnTile, ColumnTiles, Rows
from .depthwise_tiles import WINDOW_DECISIONS, DepthwiseTile, DepthwiseTiles, Window
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
from .tile_space import Tile, TileSpace, dividing, names_of
from .vector_row_tiles import VECTOR_ROW_DECISIONS, Planes, VectorRowTile, VectorRowTiles

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
    "ColumnTile",
    "ColumnTiles",
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
    "DepthwiseTile",
    "DepthwiseTiles",
]
