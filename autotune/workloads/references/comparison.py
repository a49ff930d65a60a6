"""The error of a result against its reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

_BLOCK = 1 << 16
SMALL = 1e-3  # Values below this share of the largest one are compared with this share instead.


def max_relative_error(out: NDArray[Any], ref: NDArray[Any]) -> float:
    """Returns the largest ``|out - ref| / max(|ref|, 1e-3 * max|ref|)``, which has no unit.

    Args:
        out: A kernel's result.
        ref: The reference, with the same number of elements. An integer array is compared exactly.

    Returns:
        The error, at least 0. Infinity if ``out`` or ``ref`` has NaN or infinity, if integers
        differ, or if ``ref`` is zero everywhere and ``out`` is not.

    Raises:
        UsageError: The arrays differ in their number of elements.
    """
    if out.size != ref.size:
        raise UsageError(
            f"cannot compare {out.size} elements with {ref.size}",
            hint="give the output and the reference of the same kernel",
        )
    out, ref = out.ravel(), ref.ravel()
    if np.issubdtype(ref.dtype, np.integer):
        return 0.0 if np.array_equal(out, ref) else math.inf
    # Block by block: a block's data stay in a cache, whereas whole temporaries would go through memory.
    blocks = [slice(at, at + _BLOCK) for at in range(0, ref.size, _BLOCK)]
    largest = max((float(np.abs(ref[block]).max()) for block in blocks), default=0.0)
    if largest == 0.0:
        return math.inf if out.any() else 0.0
    worst = max(_worst(out[block], ref[block], SMALL * largest) for block in blocks)
    return worst if math.isfinite(worst) else math.inf


def _worst(out: NDArray[Any], ref: NDArray[Any], floor: float) -> float:
    """Returns the largest error of a block; infinity if it is not a number."""
    expected = ref.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(out.astype(np.float64) - expected)
        error /= np.maximum(np.abs(expected), floor)
    worst = float(error.max())
    return math.inf if math.isnan(worst) else worst
