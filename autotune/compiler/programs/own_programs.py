"""Loads a kernel of the user's own: a TVM program from their file, with a numpy function that computes the same."""

from __future__ import annotations

import contextlib
import math
import sys
from types import ModuleType
from typing import Any

from autotune.compiler.programs.candidate import program_hash
from autotune.errors import UsageError
from autotune.waits import waiting
from autotune.workloads import OwnProgram, load_named, register_program, users_errors
from autotune.workloads.operators import (
    LARGEST_TENSOR,
    MOST_AXES,
    OWN_NAME,
    DType,
    Kernel,
    OwnKernel,
    TensorSpec,
)

_HOW = "return a PrimFunc written with T.prim_func(s_tir=True), or a list of tensors: inputs, then outputs"


def own_kernel(reference: str) -> Kernel:
    """Imports and calls the user's function, and makes its program known in this process.

    The function `NAME` takes no arguments. It returns a PrimFunc, or a list of `te` tensors: inputs, then outputs.
    `NAME` may also be a PrimFunc itself. The same file has `NAME_reference(*inputs)`, which computes the outputs
    with numpy, and may have `NAME_inputs(generator)`, which draws the inputs.

    Args:
        reference: `path/to/file.py:NAME` or `package.module:NAME`.

    Returns:
        The kernel; its role is `forward`.

    Raises:
        UsageError: There is no such function, it fails, or its program cannot be tuned.
    """
    name = reference.rpartition(":")[2].strip()
    with waiting(f"{reference} to be loaded"), contextlib.redirect_stdout(sys.stderr):
        module, found = load_named(reference, "a TVM program")
        if OWN_NAME.fullmatch(name) is None:
            raise UsageError(
                f"{reference}: {name!r} cannot be the name of a kernel",
                hint="at most 40 ASCII letters, digits and underscores, beginning with a letter",
            )
        program = _program(reference, name, found)
        inputs, outputs = _operands(reference, program)
        operator = OwnKernel.of(name, _digest(program), _flops(program), inputs, outputs)
        own = OwnProgram(
            program, _function(module, name, "reference"), getattr(module, f"{name}_inputs", None)
        )
    register_program(operator, own)
    return Kernel(operator, "forward")


def _program(reference: str, name: str, found: Any) -> Any:
    """Returns the PrimFunc that the user's function makes."""
    import tvm
    from tvm import te, tirx

    made = found
    if not isinstance(found, tirx.PrimFunc | tvm.IRModule):
        with users_errors(
            f"{reference}: {name}()", "fix the function; it is called without arguments"
        ):
            made = found()
    if isinstance(made, list | tuple) and made and all(isinstance(t, te.Tensor) for t in made):
        with users_errors(f"{reference}: a program of these tensors", _HOW):
            made = te.create_prim_func(list(made))
    if isinstance(made, tvm.IRModule) and len(made.functions) == 1:
        (made,) = made.functions.values()
    if not isinstance(made, tirx.PrimFunc):
        raise UsageError(
            f"{reference}: {name}() returned {type(made).__name__}, not a TVM program", hint=_HOW
        )
    # As MetaSchedule and `te.create_prim_func` mark a program.
    return made.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)


def _operands(
    reference: str, program: Any
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Returns what a program reads and what it writes."""
    import tvm_ffi
    from tvm import tirx
    from tvm.s_tir import SBlock

    blocks: list[Any] = []
    tvm_ffi.structural_walk(program.body, [(SBlock, blocks.append)])
    if len(blocks) < 2:  # The root, and at least one that computes.
        raise UsageError(f"{reference}: the program has no blocks to schedule", hint=_HOW)
    stored = [region.source for block in blocks for region in block.writes]
    specs = []
    for number, parameter in enumerate(program.params):
        shape = getattr(parameter, "shape", None)
        if shape is None or not all(isinstance(n, int | tirx.IntImm) for n in shape):
            raise UsageError(
                f"{reference}: parameter {parameter.name} has no fixed shape", hint=_HOW
            )
        sizes = tuple(map(int, shape))
        if not 1 <= len(sizes) <= MOST_AXES or min(sizes) < 1 or math.prod(sizes) > LARGEST_TENSOR:
            raise UsageError(
                f"{reference}: parameter {parameter.name} has the shape {sizes}",
                hint=f"an operand has 1 to {MOST_AXES} axes, sizes from 1, and at most {LARGEST_TENSOR} elements",
            )
        if str(parameter.dtype) not in ("float32", "int32") or parameter.strides:
            raise UsageError(
                f"{reference}: parameter {parameter.name} is {parameter.dtype}"
                f"{' with strides' if parameter.strides else ''}",
                hint="operands are contiguous, float32 or int32",
            )
        dtype: DType = "int32" if str(parameter.dtype) == "int32" else "float32"
        specs.append(TensorSpec(f"operand{number}", sizes, dtype))
    written = [any(parameter.same_as(one) for one in stored) for parameter in program.params]
    if not specs or sorted(written) != written or written[0] or not written[-1]:
        raise UsageError(
            f"{reference}: the program does not read its first parameters and write its last ones",
            hint=_HOW,
        )
    first = written.index(True)
    return tuple(specs[:first]), tuple(specs[first:])


def _function(module: ModuleType, name: str, what: str) -> Any:
    found = getattr(module, f"{name}_{what}", None)
    if not callable(found):
        raise UsageError(
            f"{module.__file__} has no function {name}_{what!s}",
            hint=f"define {name}_{what}(*inputs): it returns the outputs, computed with numpy",
        )
    return found


def _digest(program: Any) -> str:
    import tvm

    return f"{program_hash(tvm.IRModule({'main': program})):016x}"


def _flops(program: Any) -> int:
    """Returns TVM's count of arithmetic operations; 0 if it cannot count them."""
    from tvm.s_tir import analysis

    try:
        return max(0, int(analysis.estimate_tir_flops(program.body)))
    except Exception:  # TVM raises its first error, such as for loops without a fixed length.
        return 0
