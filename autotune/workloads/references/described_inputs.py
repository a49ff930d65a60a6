"""Inputs with which described kernels are measured and checked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.workloads.expressions import (
    Apply,
    Constant,
    Described,
    Load,
    evaluate_described,
    walk,
)

_RANGES = ((-0.25, 1.25, 0), (0.1, 0.9, 1), (1.1, 2.0, 1), (-1.0, 1.0, 1))
"""Of floats, and the least int. The first is that of all kernels; the others are for what has no value there."""


def described_inputs(kernel: Described, generator: np.random.Generator) -> list[NDArray[Any]]:
    """Draws inputs for which every result is finite, if there are some.

    Floats are uniform in the first of a few ranges that gives finite results. Ints are uniform from 0 to the
    smallest index that they are clamped to; where there is none, to the largest size of a loop.

    Args:
        kernel: The kernel.
        generator: Where the numbers come from.

    Returns:
        One array for each operand, float32 or int32.
    """
    most = [_most(kernel, source) for source in range(len(kernel.operands))]
    arrays: list[NDArray[Any]] = []
    for low, high, least in _RANGES:
        arrays = [
            generator.integers(min(least, most[at]), most[at] + 1, operand.shape, np.int32)
            if operand.dtype == "int32"
            else generator.uniform(low, high, operand.shape).astype(np.float32)
            for at, operand in enumerate(kernel.operands)
        ]
        if all(np.isfinite(one).all() for one in evaluate_described(kernel, arrays)):
            break
    return arrays


def _most(kernel: Described, source: int) -> int:
    """The largest value that is drawn for an operand of ints."""
    bounds = []
    for stage in kernel.stages:
        holding: set[object] = set()  # Terms that are the operand's value, but for a lower bound.
        for term in walk(stage.body):
            match term:
                case Load(source=read) if read == source:
                    holding.add(term)
                case Apply(function="max", arguments=(inner, Constant())) if inner in holding:
                    holding.add(term)
                case Apply(function="min", arguments=(inner, Constant(value=bound))) if (
                    inner in holding
                ):
                    bounds.append(int(bound))
                case _:
                    pass
    sizes = [size for stage in kernel.stages for size in (*stage.shape, *stage.reduced)]
    return max(0, min(bounds)) if bounds else max(1, *(size - 1 for size in sizes))
