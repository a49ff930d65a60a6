"""Quotients and remainders of floats and integers."""

from __future__ import annotations

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type, dtype_of, pointwise, two_operands
from autotune.workloads.aten.program import Operation
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.values import Value
from autotune.workloads.expressions import Constant, Term, apply, integer


@lowers("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
@lowers("floor_divide.default", "floor_divide.Scalar")
def _div(lowering: Lowering, operation: Operation) -> Value:
    mode = operation.arguments.get("rounding_mode")
    if "floor_divide" in operation.operator:
        mode = "floor"
    dtype = dtype_of(operation)

    def body(a: Term, b: Term) -> Term:
        return _quotient(as_type(a, dtype), as_type(b, dtype), mode)

    return pointwise(lowering, operation.shape, dtype, body, *two_operands(operation))


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
@lowers("fmod.Tensor", "fmod.Scalar")
def _remainder(lowering: Lowering, operation: Operation) -> Value:
    """What is left by a quotient that is rounded down, or towards zero (`fmod`)."""
    dtype, mode = dtype_of(operation), "trunc" if "fmod" in operation.operator else "floor"

    def body(a: Term, b: Term) -> Term:
        a, b = as_type(a, dtype), as_type(b, dtype)
        if _positive(b) and mode == "floor":
            return apply("mod", a, b)
        return apply("sub", a, apply("mul", _quotient(a, b, mode), b))

    return pointwise(lowering, operation.shape, dtype, body, *two_operands(operation))


def _quotient(a: Term, b: Term, mode: str | None) -> Term:
    """The quotient of two floats or two integers, rounded by `floor` or `trunc` where a mode is given."""
    if a.type == "int":
        return _whole(a, b, truncated=mode == "trunc")
    exact = apply("div", a, b)
    return exact if mode is None else apply(mode, exact)


def _whole(a: Term, b: Term, *, truncated: bool) -> Term:
    """The quotient of integers, rounded down or towards zero. By zero, which is an error in PyTorch, it is 0."""
    if not _positive(b):
        negative = apply("lt", b, integer(0))
        a = apply("select", negative, apply("neg", a), a)
        size = apply("max", apply("abs", b), integer(1))
        none = apply("eq", b, integer(0))
        return apply("select", none, integer(0), _whole_by_positive(a, size, truncated))
    return _whole_by_positive(a, b, truncated)


def _whole_by_positive(a: Term, b: Term, truncated: bool) -> Term:
    if not truncated:
        return apply("floordiv", a, b)
    size = apply("floordiv", apply("max", apply("abs", a), integer(0)), b)
    return apply("select", apply("lt", a, integer(0)), apply("neg", size), size)


def _positive(term: Term) -> bool:
    return isinstance(term, Constant) and term.type == "int" and term.value > 0
