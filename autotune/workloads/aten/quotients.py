"""Quotients and remainders of floats and integers."""

from __future__ import annotations

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.pointwise import as_type, dtype_of, pointwise
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
        if dtype == "int32":
            return _whole(as_type(a, "int32"), as_type(b, "int32"), truncated=mode == "trunc")
        quotient = apply("div", as_type(a, "float32"), as_type(b, "float32"))
        return quotient if mode is None else apply(mode, quotient)

    first, second = list(operation.arguments.values())[:2]
    return pointwise(lowering, operation.shape, dtype, body, first, second)


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
@lowers("fmod.Tensor", "fmod.Scalar")
def _remainder(lowering: Lowering, operation: Operation) -> Value:
    """What is left by a quotient that is rounded down, or towards zero (`fmod`)."""
    dtype, truncated = dtype_of(operation), "fmod" in operation.operator

    def body(a: Term, b: Term) -> Term:
        a, b = as_type(a, dtype), as_type(b, dtype)
        if dtype == "int32":
            if _positive(b) and not truncated:
                return apply("mod", a, b)
            quotient = _whole(a, b, truncated=truncated)
        else:
            quotient = apply("trunc" if truncated else "floor", apply("div", a, b))
        return apply("sub", a, apply("mul", quotient, b))

    first, second = list(operation.arguments.values())[:2]
    return pointwise(lowering, operation.shape, dtype, body, first, second)


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
