"""Shuffled batches of samples, without end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.workloads.data.samples import Samples, generator_of


def batches(
    samples: Samples, batch: int, seed: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Yields full batches without end, from samples shuffled again in each epoch.

    No sample occurs twice in an epoch. Samples that are left at its end and do not fill a batch are skipped; the
    next shuffle skips others.

    Args:
        samples: The samples.
        batch: Number of samples in a batch, at least 1.
        seed: Seed of the shuffle, not negative. The same seed gives the same batches.

    Returns:
        An endless iterator of images, float32 [batch, c, h, w], and labels, int32 [batch]. Each is a copy.

    Raises:
        UsageError: ``batch`` is below 1 or above the number of samples, or ``seed`` is negative.
    """
    chosen = batch_orders(samples.count, batch, seed)
    return ((samples.images[some], samples.labels[some]) for some in chosen)


def batch_orders(count: int, batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yields the numbers of the samples of each batch without end, as ``batches`` takes them.

    Args:
        count: Number of samples.
        batch: Number of samples in a batch, at least 1.
        seed: Seed of the shuffle, not negative.

    Raises:
        UsageError: As ``batches``.
    """
    if batch < 1:
        raise UsageError(f"batch={batch} is too small", hint="batch starts at 1")
    if count < batch:
        raise UsageError(
            f"{count} samples do not fill a batch of {batch}",
            hint=f"use a batch of at most {count}, or more samples",
        )
    return _epochs(count, batch, generator_of(seed))


def _epochs(count: int, batch: int, generator: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    while True:
        order = generator.permutation(count)
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch]
