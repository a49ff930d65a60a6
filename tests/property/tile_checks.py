"""What holds of the tiles of any space, drawn and changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import assume

from autotune.compiler.tiles.tile_space import TileSpace


def check_drawn(tiles: TileSpace[Any], drawn: Sequence[Any], check: Callable[[Any], None]) -> None:
    """Tiles and what is made of them pass the check, and a cost model can tell them apart.

    An example without any tile does not count; a test whose examples have none fails.
    """
    assume(drawn)
    for tile in drawn:
        check(tile)
        other = tiles.mutated(tile)
        check(other)
        assert np.isfinite(tiles.features(other)).all()
        assert other == tile or not np.array_equal(tiles.features(other), tiles.features(tile))
