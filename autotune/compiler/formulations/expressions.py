"""Described kernels: their expressions as tensor expressions, alone or as the epilogue of another kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tvm import te, tirx

from autotune.compiler.formulations.registry import Tensors, epilogue, formulation
from autotune.workloads.expressions import (
    Apply,
    Axis,
    Constant,
    Described,
    Load,
    Stage,
    Term,
    walk,
    wrapping,
)
from autotune.workloads.operators import Expression

_COMBINED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"sum": te.sum, "max": te.max, "min": te.min}
)
_DTYPES = MappingProxyType({"float": "float32", "int": "int32", "bool": "bool"})


@formulation("expr", "forward", "direct")
@formulation("expr", "update", "direct")
def described(op: Expression, inputs: Tensors) -> Tensors:
    return _outputs(op.kernel, inputs)


@epilogue("expr", "forward")
@epilogue("expr", "update")
def described_after(op: Expression, streamed: Any, added: Tensors) -> Tensors:
    """A kernel's stages over the loops of the result that it follows, whose shape may be another."""
    kernel, shape = op.kernel, _sizes(streamed)
    tensors = [*added, streamed]

    def computed(stage: Stage, name: str) -> Any:
        def body(*index: Any) -> Any:
            def own(tensor: Any) -> list[Any]:
                return reshaped_index(index, shape, _sizes(tensor))

            axes = reshaped_index(index, shape, stage.shape)
            return _value(stage, axes, tensors, kernel, own)

        return te.compute(shape, body, name=name)

    for number, stage in enumerate(kernel.stages):
        tensors.append(computed(stage, f"t{number}"))
    return [tensors[len(kernel.operands) + number] for number in kernel.outputs]


def _outputs(kernel: Described, inputs: Tensors) -> Tensors:
    tensors = list(inputs)
    for number, stage in enumerate(kernel.stages):
        tensors.append(_stage(kernel, stage, tensors, f"t{number}"))
    return [tensors[len(kernel.operands) + number] for number in kernel.outputs]


def _stage(kernel: Described, stage: Stage, tensors: Sequence[Any], name: str) -> Any:
    reduced = [te.reduce_axis((0, size), f"r{number}") for number, size in enumerate(stage.reduced)]

    def body(*spatial: Any) -> Any:
        value = _value(stage, [*spatial, *reduced], tensors, kernel)
        return _COMBINED[stage.combiner](value, axis=reduced) if reduced else value

    return te.compute(stage.shape, body, name=name)


def _value(
    stage: Stage,
    axes: Sequence[Any],
    tensors: Sequence[Any],
    kernel: Described,
    own: Callable[[Any], list[Any]] | None = None,
) -> Any:
    """The body of a stage at an index of its loops.

    Args:
        stage: The stage.
        axes: The index.
        tensors: Operands and earlier stages.
        kernel: The kernel.
        own: Gives the same index in the shape of a tensor, without going through the stage's shape: TVM does not
            always find that the way there and back changes nothing.
    """
    done: dict[Any, Any] = {}
    wraps = wrapping(stage.body, (*stage.shape, *stage.reduced))
    itself = tuple(Axis(at) for at in range(len(stage.shape)))
    for term in walk(stage.body):
        match term:
            case Axis(number=at):
                done[term] = axes[at]
            case Constant(value=value, type=kind):
                done[term] = te.const(value, _DTYPES[kind])
            case Load() if own is not None and term.at == itself:
                tensor = tensors[term.source]
                done[term] = tensor[tuple(own(tensor))]
            case Load():
                tensor = tensors[term.source]
                index = [done[one] for one in term.at]
                shape = kernel.source(term.source).shape
                done[term] = tensor[tuple(reshaped_index(index, shape, _sizes(tensor)))]
            case Apply() if _guards(term):
                condition, yes, no = (done[one] for one in term.arguments)
                done[term] = _branch(condition, yes, no, te.const(0, _DTYPES[term.type]))
            case Apply() if term in wraps:
                done[term] = _wrapped(term.function, [done[one] for one in term.arguments])
            case Apply():
                done[term] = _APPLIED[term.function](*[done[one] for one in term.arguments])
    return done[stage.body]


def _wrapped(function: str, ints: Sequence[Any]) -> Any:
    """A result of 32-bit integers that wraps around, computed in 64 bits.

    TVM, C and LLVM all take 32-bit results to stay within 32 bits, signed or not. They would leave out what brings
    an index into its tensor.
    """
    exact = _APPLIED[function](*[one.astype("int64") for one in ints])
    half = te.const(2**31, "int64")
    return (te.floormod(exact + half, half + half) - half).astype("int32")


def _guards(term: Apply) -> bool:
    """Returns whether a selection keeps a load inside its tensor, whose index is brought into range for that.

    TVM's simplifier takes such a minimum or maximum away, since the condition implies it. A `Select` then reads
    outside the tensor, because it computes both of its values.
    """
    return term.function == "select" and any(
        isinstance(load, Load) and any(map(_clamps, load.at))
        for value in term.arguments[1:]
        for load in walk(value)
    )


def _clamps(index: Term) -> bool:
    terms = list(walk(index))
    bounds = any(isinstance(one, Apply) and one.function in ("min", "max") for one in terms)
    return bounds and not any(isinstance(one, Load) for one in terms)


def reshaped_index(index: Sequence[Any], shape: Sequence[int], wanted: Sequence[int]) -> list[Any]:
    """The index, in another shape of the same elements, of what an index names in one."""
    found: list[Any] = []
    left, right = 0, 0
    while left < len(shape) or right < len(wanted):
        # The shortest runs of axes of both that have the same number of elements.
        begin, start = left, right
        have, want = 1, 1
        while left == begin or right == start or have != want:
            if right < len(wanted) and (want < have or right == start or left == len(shape)):
                want *= wanted[right]
                right += 1
            elif left < len(shape):
                have *= shape[left]
                left += 1
            else:
                break
        found += _run(index[begin:left], shape[begin:left], wanted[start:right])
    return found


def _run(index: Sequence[Any], shape: Sequence[int], wanted: Sequence[int]) -> list[Any]:
    long = [one for one, size in zip(index, shape, strict=True) if size > 1]
    if [size for size in shape if size > 1] == [size for size in wanted if size > 1]:
        given = iter(long)
        return [next(given) if size > 1 else 0 for size in wanted]
    flat: Any = 0
    for one, size in zip(index, shape, strict=True):
        flat = flat * size + one
    found: list[Any] = []
    for size in reversed(wanted):
        found.append(te.floormod(flat, size))
        flat = te.floordiv(flat, size)
    return found[::-1]


def _sizes(tensor: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in tensor.shape)


def _select(condition: Any, yes: Any, no: Any) -> Any:
    return tirx.Select(condition, yes, no)


def _branch(condition: Any, yes: Any, no: Any, zero: Any) -> Any:
    """A selection that computes one of its values. The second has a condition, which TVM's simplifier needs."""
    return te.if_then_else(condition, yes, te.if_then_else(tirx.Not(condition), no, zero))


def _quotient(a: Any, b: Any) -> Any:
    """A division by a constant is a product, which takes a tenth of the time."""
    return (
        a * te.const(1.0 / b.value, "float32")
        if isinstance(b, tirx.FloatImm) and b.value
        else te.div(a, b)
    )


_APPLIED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "neg": lambda x: -x,
        "abs": te.abs,
        "exp": te.exp,
        "log": te.log,
        "sqrt": te.sqrt,
        "tanh": te.tanh,
        "sigmoid": te.sigmoid,
        "erf": te.erf,
        "sin": te.sin,
        "cos": te.cos,
        "log1p": lambda x: te.log(x + te.const(1.0, "float32")),
        "expm1": lambda x: te.exp(x) - te.const(1.0, "float32"),
        "floor": te.floor,
        "ceil": te.ceil,
        "trunc": te.trunc,
        "nearest": te.round,
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "max": te.max,
        "min": te.min,
        "div": _quotient,
        "pow": te.power,
        "floordiv": te.floordiv,
        "mod": te.floormod,
        "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b,
        "eq": lambda a, b: a.equal(b),
        "ne": lambda a, b: tirx.NE(a, b),
        "and": te.all,
        "or": te.any,
        "not": tirx.Not,
        "select": _select,
        "float": lambda x: x.astype("float32"),
        "int": lambda x: x.astype("int32"),
    }
)
