"""The order of measurements in interleaved blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def in_blocks(counts: Sequence[int], seed: int) -> Iterator[int]:
    """Yields the index of the next side to time, block by block. Each block has a new random order.

    Args:
        counts: Number of blocks that include each side, counted from the first block.
        seed: Seed of the orders.
    """
    order = np.random.default_rng(seed)
    for block in range(max(counts)):
        yield from (int(one) for one in order.permutation(len(counts)) if block < counts[one])
