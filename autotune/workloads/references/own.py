"""Programs of the user's own kernels, with numpy functions that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.waits import waiting
from autotune.workloads.operators import OwnKernel, TensorSpec
from autotune.workloads.user_code import users_errors

Arrays = list[NDArray[Any]]


@dataclass(frozen=True)
class OwnProgram:
    """What the user's file holds of a kernel.

    Attributes:
        program: The unscheduled TVM PrimFunc.
        reference: Computes the same with numpy: takes the inputs, floats in float64, and returns the outputs.
        inputs: Draws the inputs with numpy's generator; None for the usual ones.
    """

    program: Any
    reference: Callable[..., Any]
    inputs: Callable[[np.random.Generator], Any] | None = None


_PROGRAMS: dict[str, OwnProgram] = {}


def register_program(operator: OwnKernel, program: OwnProgram) -> None:
    """Makes a kernel's program known in this process."""
    _PROGRAMS[operator.text] = program


def program_of(operator: OwnKernel) -> OwnProgram:
    """Returns a kernel's program.

    Raises:
        UsageError: The user's file was not loaded in this process.
    """
    found = _PROGRAMS.get(operator.text)
    if found is None:
        raise UsageError(
            f"the program of {operator.function} ({operator.digest}) is not loaded",
            hint="name its function: --op path/to/file.py:function",
        )
    return found


def own_reference(operator: OwnKernel, inputs: Sequence[Any]) -> Arrays:
    """Computes a kernel with the user's function.

    Args:
        operator: The kernel.
        inputs: One array for each operand, floats in float64.

    Returns:
        One array for each output, in its shape.

    Raises:
        UsageError: The function fails, or returns something else.
    """
    with (
        waiting(f"{operator.function}'s reference"),
        users_errors(f"{operator.function}'s reference", "fix the function"),
        np.errstate(all="ignore"),  # Values that are not finite are refused below.
    ):
        made = program_of(operator).reference(*inputs)
        if not isinstance(made, tuple | list):
            made = (made,)
        arrays = [np.asarray(one) for one in made]
    return _fitting(operator, "reference", arrays, operator.outputs("forward"))


def own_inputs(operator: OwnKernel, generator: np.random.Generator) -> Arrays | None:
    """Draws a kernel's inputs with the user's function; None if there is none.

    Raises:
        UsageError: The function fails, or returns something else.
    """
    draw = program_of(operator).inputs
    if draw is None:
        return None
    with (
        waiting(f"{operator.function}'s inputs"),
        users_errors(f"{operator.function}'s inputs", "fix the function"),
    ):
        arrays = [np.asarray(one) for one in draw(generator)]
    wanted = operator.inputs("forward")
    return [
        array.astype(spec.dtype)
        for array, spec in zip(_fitting(operator, "inputs", arrays, wanted), wanted, strict=True)
    ]


def _fitting(
    operator: OwnKernel, what: str, arrays: Arrays, wanted: Sequence[TensorSpec]
) -> Arrays:
    found = [array.shape for array in arrays]
    shapes = [spec.shape for spec in wanted]
    odd = next((array for array in arrays if array.dtype.kind not in "biuf"), None)
    if odd is not None:
        raise UsageError(
            f"{operator.function}'s {what} returns {_kind(odd)}, not an array of real numbers",
            hint=f"the program has {', '.join(spec.dtype for spec in wanted)}",
        )
    if found != shapes:
        raise UsageError(
            f"{operator.function}'s {what} returns arrays of shape {', '.join(map(str, found)) or 'none'}",
            hint=f"the program has {', '.join(map(str, shapes))}",
        )
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
        raise UsageError(
            f"{operator.function}'s {what} returns values that are not finite",
            hint="define FUNCTION_inputs, which draws inputs from the range that the kernel is for",
        )
    return arrays


def _kind(array: NDArray[Any]) -> str:
    """Returns what a value that is no array of real numbers is."""
    if array.dtype.kind == "O" and array.shape == ():
        return "None" if array.item() is None else f"a value of type {type(array.item()).__name__}"
    kinds = {"O": "objects", "U": "texts", "S": "bytes"}
    return f"an array of {kinds.get(array.dtype.kind, array.dtype.name)}"
