"""Pareto fronts of points whose every coordinate is minimised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def front(points: ArrayLike) -> list[int]:
    """Returns indices of the points that no other point dominates, in their order.

    Of equal points, the first is kept.

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
    """Returns the area that points dominate below a reference point, for two objectives.

    Args:
        points: Shape (n, 2).
        reference: A point that no point of interest exceeds.
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
    """Returns the hypervolume that each point alone would add to a front, for two objectives.

    Args:
        points: Shape (..., 2).
        known: The front, shape (n, 2); may be empty.
        reference: A point that no point of interest exceeds.

    Returns:
        Shape (...).
    """
    steps = known[np.lexsort((known[:, 1], known[:, 0]))] if len(known) else known.reshape(0, 2)
    steps = steps[(steps < np.asarray(reference)).all(axis=1)]
    steps = steps[front(steps)] if len(steps) else steps
    # The free height between two neighbours of the front is constant: the left one's second coordinate.
    left = np.concatenate([[-np.inf], steps[:, 0]])
    right = np.concatenate([steps[:, 0], [float(reference[0])]])
    ceiling = np.concatenate([[float(reference[1])], steps[:, 1]])
    x, y = points[..., 0, None], points[..., 1, None]
    widths = np.clip(right - np.maximum(left, x), 0.0, None)
    heights = np.clip(ceiling - y, 0.0, None)
    return np.asarray((widths * heights).sum(axis=-1))


def knee(points: ArrayLike) -> int | None:
    """Returns the index of a front's point furthest below the line between its ends, on logarithmic scales.

    See Das, I. (1999), "On characterizing the knee of the Pareto curve". Logarithms are used because seconds and
    joules span orders of magnitude.

    Args:
        points: Shape (n, 2), of a front; above zero.

    Returns:
        None if there is no knee, as with fewer than three points.
    """
    values = np.log(np.asarray(points, np.float64).reshape(-1, 2))
    if len(values) < 3:
        return None
    first, last = values[values[:, 0].argmin()], values[values[:, 1].argmin()]
    span = last - first
    below = (values - first) @ np.array([span[1], -span[0]])
    return int(np.argmax(below)) if below.max() > 1e-9 else None


def gain(mine: ArrayLike, theirs: ArrayLike) -> tuple[float, float | None]:
    """Compares a front with another one, for two objectives that are above zero.

    Areas are of logarithms, below the worst of both fronts.

    Args:
        mine: Shape (n, 2).
        theirs: Shape (m, 2).

    Returns:
        The share of their points that one of mine equals or dominates; and the relative gain of my hypervolume,
        None if
        theirs has none and mine has some.
    """
    own, other = (np.log(np.asarray(x, np.float64)).reshape(-1, 2) for x in (mine, theirs))
    beaten = (own[:, None, :] <= other[None]).all(axis=2).any(axis=0)
    worst = np.vstack([own, other]).max(axis=0)
    areas = [hypervolume(x, worst.tolist()) for x in (own, other)]
    if areas[1] == 0:
        return float(beaten.mean()), 0.0 if areas[0] == 0 else None
    return float(beaten.mean()), float(areas[0] / areas[1] - 1)
