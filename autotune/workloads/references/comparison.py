"""How far a result is from its reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

SMALL = 1e-3  # values below this share of the largest are compared with that share instead


def max_relative_error(out: NDArray[Any], ref: NDArray[Any]) -> float:
    """Returns the largest ``|out - ref| / max(|ref|, 1e-3 * max|ref|)``, without a unit.

    Args:
        out: A kernel's result.
        ref: The reference, with the same number of elements; an integer array is compared exactly.

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
    got, expected = out.astype(np.float64), ref.astype(np.float64)
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return math.inf
    magnitude = np.abs(expected)
    largest = float(magnitude.max(initial=0.0))
    if largest == 0.0:
        return math.inf if got.any() else 0.0
    return float((np.abs(got - expected) / np.maximum(magnitude, SMALL * largest)).max())
