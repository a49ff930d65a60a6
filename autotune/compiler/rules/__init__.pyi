from .rules import (
    NO_SCHEDULE,
    cuts,
    design_spaces,
    no_tensor_intrinsics,
    space_generator,
    tile_rule,
)
from .streaming import streamed
from .streaming_gpu import streamed_on_gpu
from .tile_rules import Sketches, TileRule, recorded_tile, tile_of, tiles_of

__all__ = [
    "cuts",
    "design_spaces",
    "NO_SCHEDULE",
    "no_tensor_intrinsics",
    "recorded_tile",
    "Sketches",
    "space_generator",
    "streamed",
    "streamed_on_gpu",
    "tile_of",
    "tile_rule",
    "TileRule",
    "tiles_of",
]
