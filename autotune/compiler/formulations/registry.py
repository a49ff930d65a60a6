"""The registry of formulations: mathematically equal ways to compute one kernel.

A formulation is a function from an operator to a TVM tensor expression. It keeps the kernel's public signature
(inputs, then outputs, all contiguous, in the order of `Kernel.inputs` and `Kernel.outputs`). Inside, it may pack,
split or reorder. The search picks one per shape. A new formulation is one file in this package and one
`@formulation` line. If a rule of its own schedules it, it marks its main block with one of the annotations below.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from autotune.errors import UsageError
from autotune.workloads import program_of
from autotune.workloads.operators import Kernel, OwnKernel

PRODUCT = "autotune.product"
"""Annotation of a product's block, as integers: whether each operand is contiguous along the reduction, and a third
integer if the operands are transforms."""
TRANSFORM = "autotune.transform"
"""Annotation of a block that transforms tiles, in the registers of one work-item or as vectors: see `winograd`
and `winograd_gemm`. On a `TRANSFORMED` product it is the rows of tiles of an image; on its result, the side."""
WINDOW = "autotune.window"
"""Annotation of a depthwise kernel's block: whether its result is filters, its stride and its dilation."""
FEW_CHANNELS = "autotune.few_channels"
"""Annotation of the block that sums: whether it is a gradient, the filter's rows and columns, and the stride."""
REGISTER_PRODUCT = "autotune.register_product"
"""Annotation of a product's block, whose last axis is contiguous in the result and in one operand."""
ANY_COLUMNS, ALL_COLUMNS, APART, TRANSFORMED = 1, 2, 3, 4
"""Values of `REGISTER_PRODUCT`: a tile may have some columns; or must have all, since they are added up next; or
may have some, and what follows has another shape, so that it runs after all tiles; or the product is one of
transforms, and each share of its rows is transformed, multiplied and transformed back at once."""
VECTOR_ROWS = "autotune.vector_rows"
"""Annotation of the block that sums windows, row by row of a plane."""
ROWS = "autotune.rows"
"""Annotation of the block that sums blocks of rows."""
JOINED = "autotune.joined_parts"
"""Annotation of the block that joins parts: the largest number of channels that divides them all."""
ATTENTION = "autotune.attention"
"""Annotation of the block that writes a strip of scores, or of their gradients: the elements of a head, and the
number of products of that length that it takes."""

Tensors = Sequence[Any]
"""TVM `te.Tensor` objects; typed loosely because TVM ships no annotations for them."""

Attributes = dict[str, Any] | None
"""Marks of a block, for the rule that schedules it."""

Define = Callable[[Any, Tensors], Tensors]
"""Maps (operator, input placeholders) to the output tensors."""

Defining = TypeVar("Defining", bound=Define)


@dataclass(frozen=True)
class Formulation:
    """One way to compute a role of an operator.

    Attributes:
        operator: Operator name, such as `conv2d`.
        role: Role, such as `weight_grad`.
        name: Name of the formulation, such as `direct`. Every role has a `direct` one: the plain
            definition, which is also what the untuned default schedule compiles.
        define: Builds the tensor expression.
        applies: Whether it fits a particular operator (shape).
        rule: Kind of the search-space rule that schedules it; empty if the general rules of any space do.
    """

    operator: str
    role: str
    name: str
    define: Define
    applies: Callable[[Any], bool]
    rule: str = ""


Follow = Callable[[Any, Any, Tensors], Tensors]
"""Maps (operator, the streamed operand, the other operands) to the output tensors."""

_EPILOGUES: dict[tuple[str, str], Follow] = {}
_REGISTRY: dict[tuple[str, str], dict[str, Formulation]] = {}


def formulation(
    operator: str,
    role: str,
    name: str,
    *,
    applies: Callable[[Any], bool] = lambda _: True,
    rule: str = "",
) -> Callable[[Defining], Defining]:
    """Registers the decorated function as a formulation of a role of an operator."""

    def register(define: Defining) -> Defining:
        entries = _REGISTRY.setdefault((operator, role), {})
        if name in entries:
            raise ValueError(f"formulation {operator}.{role}.{name} is registered twice")
        entries[name] = Formulation(operator, role, name, define, applies, rule)
        return define

    return register


def epilogue(operator: str, role: str) -> Callable[[Follow], Follow]:
    """Registers the decorated function as the epilogue form of a role of an operator."""

    def register(follow: Follow) -> Follow:
        _EPILOGUES[operator, role] = follow
        return follow

    return register


@formulation(OwnKernel.name, "forward", "direct")
def _own(op: OwnKernel, inputs: Tensors) -> Tensors:
    raise AssertionError(f"{op.function} is a program, which `prim_func` returns as it is")


def _load() -> None:
    package = __package__ or ""
    for module in iter_modules(import_module(package).__path__):
        if module.name != "registry":
            import_module(f"{package}.{module.name}")


def formulations(
    kernel: Kernel, allowed: Sequence[str] | None = None, rules: Collection[str] | None = None
) -> tuple[Formulation, ...]:
    """Lists the formulations that fit a kernel.

    Args:
        kernel: The operator and role to compute.
        allowed: Names to choose from, in order of preference; None for all registered formulations.
        rules: Kinds of the rules in the search space; None for all rules.

    Raises:
        UsageError: `allowed` names a formulation that is not registered, or none of them fits.
    """
    _load()
    known = _REGISTRY.get((kernel.operator.name, kernel.role), {})
    names = list(known) if allowed is None else list(allowed)
    for name in names:
        if name not in known:
            raise UsageError(
                f"{kernel.operator.name}.{kernel.role} has no formulation {name!r}",
                hint=f"known: {', '.join(known)}",
            )
    fitting = tuple(
        known[name]
        for name in names
        if known[name].applies(kernel.operator)
        and (rules is None or known[name].rule in ("", *rules))
    )
    if not fitting:
        raise UsageError(
            f"no formulation of {kernel.operator.name}.{kernel.role} fits {kernel.spec}",
            hint=f"tried: {', '.join(names)}",
        )
    return fitting


def registered() -> dict[tuple[str, str], dict[str, Formulation]]:
    """Returns all formulations by (operator, role) and name."""
    _load()
    return {key: dict(entries) for key, entries in _REGISTRY.items()}


def prim_func(kernel: Kernel, chosen: Formulation) -> Any:
    """Builds the kernel's TensorIR function for one formulation. A kernel of the user's own has only its program.

    Returns:
        An unscheduled `tvm.tirx.PrimFunc` whose parameters are the kernel's inputs then outputs.
    """
    from tvm import te

    if isinstance(kernel.operator, OwnKernel):
        return program_of(kernel.operator).program
    inputs = [te.placeholder(t.shape, dtype=t.dtype, name=t.name) for t in kernel.inputs]
    taken = len(kernel.main.inputs)
    outputs, rest = list(chosen.define(kernel.operator, inputs[:taken])), inputs[taken:]
    for follower in kernel.epilogue:
        added, rest = rest[: len(follower.added_inputs)], rest[len(follower.added_inputs) :]
        follow = _EPILOGUES[follower.operator.name, follower.role]
        outputs = list(follow(follower.operator, outputs[0], added))
    return te.create_prim_func([*inputs, *outputs]).with_attr("global_symbol", "main")
