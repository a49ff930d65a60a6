"""What a described kernel computes, in float64 with numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from autotune.workloads.expressions.described import Described, Stage
from autotune.workloads.expressions.ranges import wrapping
from autotune.workloads.expressions.terms import Apply, Axis, Constant, Load, Term, walk

Array = NDArray[Any]

_AT_ONCE = 1 << 21  # elements of a block's loops
_COMBINED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"sum": np.sum, "max": np.max, "min": np.min}
)
_NUMPY: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "neg": np.negative,
        "abs": np.abs,
        "exp": np.exp,
        "log": np.log,
        "sqrt": np.sqrt,
        "tanh": np.tanh,
        # SciPy imports a part of itself when it is first used.
        "sigmoid": lambda x: scipy.special.expit(x),
        "erf": lambda x: scipy.special.erf(x),
        "sin": np.sin,
        "cos": np.cos,
        "log1p": np.log1p,
        "expm1": np.expm1,
        "floor": np.floor,
        "ceil": np.ceil,
        "trunc": np.trunc,
        "nearest": np.rint,
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
        "div": np.divide,
        "pow": np.power,
        "floordiv": np.floor_divide,
        "mod": np.mod,
        "lt": np.less,
        "le": np.less_equal,
        "eq": np.equal,
        "ne": np.not_equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
        "select": np.where,
        "float": lambda x: np.asarray(x, np.float64),
        "int": lambda x: np.trunc(x).astype(np.int64),
    }
)


def evaluate_described(kernel: Described, inputs: Sequence[Array]) -> list[Array]:
    """Computes a kernel.

    Args:
        kernel: The kernel.
        inputs: One array for each operand, in its shape: floats or ints.

    Returns:
        One array for each result, in its shape: float64 or int32.
    """
    tensors = [
        np.asarray(array, np.int64 if operand.dtype == "int32" else np.float64)
        for operand, array in zip(kernel.operands, inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        for stage in kernel.stages:
            tensors.append(_stage(stage, tensors))
    results = [tensors[len(kernel.operands) + number] for number in kernel.outputs]
    return [
        array.astype(np.int32) if operand.dtype == "int32" else array
        for operand, array in zip(kernel.results, results, strict=True)
    ]


def _stage(stage: Stage, tensors: Sequence[Array]) -> Array:
    """Computes a stage, some rows of its first axis at a time where it is large."""
    dtype = np.int64 if stage.dtype == "int32" else np.float64
    result = np.empty(stage.shape, dtype)
    rows = max(1, _AT_ONCE // max(1, stage.steps // stage.shape[0]))
    for start in range(0, stage.shape[0], rows):
        chosen = range(start, min(start + rows, stage.shape[0]))
        result[start : chosen.stop] = _block(stage, tensors, chosen)
    return result


def _block(stage: Stage, tensors: Sequence[Array], first: range) -> Array:
    loops = [first, *(range(n) for n in (*stage.shape[1:], *stage.reduced))]
    sizes = [len(loop) for loop in loops]
    done: dict[Term, Any] = {}
    wraps = wrapping(stage.body, (*stage.shape, *stage.reduced))
    for term in walk(stage.body):
        match term:
            case Axis(number=at):
                shape = [1] * len(loops)
                shape[at] = sizes[at]
                done[term] = np.arange(loops[at].start, loops[at].stop).reshape(shape)
            case Constant(value=value):
                done[term] = value
            case Load():
                done[term] = tensors[term.source][tuple(done[index] for index in term.at)]
            case Apply():
                done[term] = _NUMPY[term.function](*[done[one] for one in term.arguments])
                if term in wraps:
                    done[term] = np.asarray(done[term]).astype(np.int32).astype(np.int64)
    whole = np.broadcast_to(done[stage.body], sizes)
    if stage.combiner == "map":
        return whole
    reduced = tuple(range(len(sizes) - len(stage.reduced), len(sizes)))
    combined: Array = _COMBINED[stage.combiner](whole, axis=reduced)
    assert combined.size == math.prod(sizes[: len(sizes) - len(stage.reduced)])
    return combined
