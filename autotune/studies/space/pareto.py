"""Pareto fronts of points that are to be small in every coordinate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def front(points: ArrayLike) -> list[int]:
    """Indices of the points that no other one dominates, in their order; of equal points the first.

    Args:
        points: Shape (n, objectives).
    """
    values = np.asarray(points, np.float64)
    kept = []
    for index, value in enumerate(values):
        no_worse = (values <= value).all(axis=1)
        better = (values < value).any(axis=1)
        equal_before = (values[:index] == value).all(axis=1).any() if index else False
        if not (no_worse & better).any() and not equal_before:
            kept.append(index)
    return kept


def hypervolume(points: ArrayLike, reference: Sequence[float]) -> float:
    """Area that points dominate below a reference point, of two objectives.

    Args:
        points: Shape (n, 2).
        reference: What no point of interest exceeds.
    """
    values = np.asarray(points, np.float64).reshape(-1, 2)
    inside = values[(values < np.asarray(reference)).all(axis=1)]
    area, height = 0.0, float(reference[1])
    for x, y in sorted(map(tuple, inside)):
        if y < height:
            area += (float(reference[0]) - x) * (height - y)
            height = y
    return area


def improvement(points: Floats, known: Floats, reference: Sequence[float]) -> Floats:
    """Hypervolume that each point alone would add to a front, of two objectives.

    Args:
        points: Shape (..., 2).
        known: The front, shape (n, 2); may be empty.
        reference: What no point of interest exceeds.

    Returns:
        Shape (...).
    """
    steps = known[np.lexsort((known[:, 1], known[:, 0]))] if len(known) else known.reshape(0, 2)
    steps = steps[(steps < np.asarray(reference)).all(axis=1)]
    steps = steps[front(steps)] if len(steps) else steps
    # Between two neighbours of the front the free height is constant: the left one's second coordinate.
    left = np.concatenate([[-np.inf], steps[:, 0]])
    right = np.concatenate([steps[:, 0], [float(reference[0])]])
    ceiling = np.concatenate([[float(reference[1])], steps[:, 1]])
    x, y = points[..., 0, None], points[..., 1, None]
    widths = np.clip(right - np.maximum(left, x), 0.0, None)
    heights = np.clip(ceiling - y, 0.0, None)
    return np.asarray((widths * heights).sum(axis=-1))


def knee(points: ArrayLike) -> int | None:
    """Index of a front's point that lies furthest below the line between its ends, on logarithmic scales.

    Das, I. (1999), "On characterizing the knee of the Pareto curve"; logarithms, since seconds and joules span
    orders of magnitude.

    Args:
        points: Shape (n, 2), of a front; above zero.

    Returns:
        None where a front of fewer than three points has none.
    """
    values = np.log(np.asarray(points, np.float64).reshape(-1, 2))
    if len(values) < 3:
        return None
    first, last = values[values[:, 0].argmin()], values[values[:, 1].argmin()]
    span = last - first
    below = (values - first) @ np.array([span[1], -span[0]])
    return int(np.argmax(below)) if below.max() > 1e-9 else None


def gain(mine: ArrayLike, theirs: ArrayLike) -> tuple[float, float | None]:
    """What a front is worth beside another one, of two objectives that are above zero.

    Areas are of logarithms, below the worst of both fronts.

    Args:
        mine: Shape (n, 2).
        theirs: Shape (m, 2).

    Returns:
        The share of their points that one of mine equals or dominates, and the relative gain of my hypervolume;
        None where theirs has none, and mine has some.
    """
    own, other = (np.log(np.asarray(x, np.float64)).reshape(-1, 2) for x in (mine, theirs))
    beaten = (own[:, None, :] <= other[None]).all(axis=2).any(axis=0)
    worst = np.vstack([own, other]).max(axis=0)
    areas = [hypervolume(x, worst.tolist()) for x in (own, other)]
    if areas[1] == 0:
        return float(beaten.mean()), 0.0 if areas[0] == 0 else None
    return float(beaten.mean()), float(areas[0] / areas[1] - 1)
