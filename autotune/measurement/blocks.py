"""Whose turn it is where several are timed in interleaved blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def in_blocks(counts: Sequence[int], seed: int) -> Iterator[int]:
    """Who is timed next, block by block, each block in a new random order.

    Args:
        counts: In how many blocks each of them is, from the first one on.
        seed: Of the orders.
    """
    order = np.random.default_rng(seed)
    for block in range(max(counts)):
        yield from (int(one) for one in order.permutation(len(counts)) if block < counts[one])
