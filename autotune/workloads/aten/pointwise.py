"""Element-wise ATen operators, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autotune.workloads.aten.lowering import Lowering
from autotune.workloads.aten.program import Dtype, Operation, Ref
from autotune.workloads.aten.registry import lowers
from autotune.workloads.aten.values import Indices, Lazy, Shape, Strided, Value, expanded
from autotune.workloads.expressions import Term, apply, integer, number, truth

Body = Callable[..., Term]


def dtype_of(operation: Operation) -> Dtype:
    """Element type of an operation's first result."""
    found: Dtype = operation.dtypes[0]  # type: ignore[assignment]  # Checked when it was traced.
    return found


def pointwise(
    lowering: Lowering, shape: Shape, dtype: Dtype, body: Body, *operands: object
) -> Lazy:
    """Applies a function to tensors, which are broadcast to a shape, and to numbers.

    Args:
        lowering: The step.
        shape: Shape of the result.
        dtype: Element type of the result, which ``body`` must give.
        body: The function of scalars.
        operands: Values, arguments that are tensors, or numbers.
    """
    elements: list[Callable[[Indices], Term]] = []
    for operand in operands:
        value = lowering.value(operand) if isinstance(operand, Ref) else operand
        elements.append(_element(lowering, value, shape))
    return Lazy(shape, dtype, lambda indices: body(*[element(indices) for element in elements]))


def _element(lowering: Lowering, value: object, shape: Shape) -> Callable[[Indices], Term]:
    if isinstance(value, bool | int | float):
        constant = _constant(value)
        return lambda _: constant
    assert isinstance(value, Strided | Lazy)
    wide = expanded(value, shape)
    return lambda indices: lowering.element(wide, indices)


def as_type(term: Term, dtype: Dtype) -> Term:
    """Converts a scalar as PyTorch's promotion and ``to`` do."""
    wanted = {"float32": "float", "int32": "int", "bool": "bool"}[dtype]
    if term.type == wanted:
        return term
    if wanted == "bool":
        return apply("ne", term, number(0.0) if term.type == "float" else integer(0))
    converted = apply(wanted, term)
    if (term.type, wanted) == ("float", "int"):  # So that sums with it stay within 32 bits.
        return apply("min", apply("max", converted, integer(-(2**30))), integer(2**30))
    return converted


def _constant(value: float | int | bool) -> Term:
    if isinstance(value, bool):
        return truth(value)
    if isinstance(value, float) and math.isnan(value):
        return apply("div", number(0.0), number(0.0))
    if isinstance(value, int) and abs(value) < 2**31:
        return integer(value)
    return number(float(value))


def _promoted(function: str) -> Callable[[Lowering, Operation], Value]:
    """Lowers a function of two operands, which are promoted to the result's type."""

    def lower(lowering: Lowering, operation: Operation) -> Value:
        dtype = dtype_of(operation)

        def body(a: Term, b: Term) -> Term:
            return apply(function, as_type(a, dtype), as_type(b, dtype))

        first, second = two_operands(operation)
        return pointwise(lowering, operation.shape, dtype, body, first, second)

    return lower


def two_operands(operation: Operation) -> tuple[Any, Any]:
    """The first two arguments of an operation: tensors or numbers."""
    arguments = list(operation.arguments.values())
    return arguments[0], arguments[1]


@lowers("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "rsub.Tensor")
def _sum(lowering: Lowering, operation: Operation) -> Value:
    dtype, factor = dtype_of(operation), operation.arguments.get("alpha", 1)
    name = operation.operator.split(".")[1]

    def body(a: Term, b: Term) -> Term:
        a, b = as_type(a, dtype), as_type(b, dtype)
        if name == "rsub":
            a, b = b, a
            if factor != 1:
                b = apply("mul", b, as_type(_constant(factor), dtype))
        elif factor != 1:
            b = apply("mul", b, as_type(_constant(factor), dtype))
        return apply("add" if name == "add" else "sub", a, b)

    return pointwise(lowering, operation.shape, dtype, body, *two_operands(operation))


for _name, _function in {"mul": "mul", "maximum": "max", "minimum": "min"}.items():
    lowers(f"{_name}.Tensor", f"{_name}.Scalar", f"{_name}.default")(_promoted(_function))


@lowers("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(lowering: Lowering, operation: Operation) -> Value:
    base, exponent = two_operands(operation)
    dtype = dtype_of(operation)
    if dtype == "int32" and exponent not in (1, 2, 3):
        raise lowering.refused(operation, "is a power of integers", "use floats")

    def body(a: Term, b: Term) -> Term:
        a = as_type(a, dtype)
        match exponent:
            case 1:
                return a
            case 2:
                return apply("mul", a, a)
            case 3:
                return apply("mul", apply("mul", a, a), a)
            case 0.5:
                return apply("sqrt", a)
            case -1:
                return apply("div", number(1.0), a)
            case -0.5:
                return apply("div", number(1.0), apply("sqrt", a))
            case _:
                return apply("pow", a, as_type(b, "float32"))

    return pointwise(lowering, operation.shape, dtype, body, base, exponent)


def _like(value: int, term: Term) -> Term:
    """A constant of a term's type."""
    return integer(value) if term.type == "int" else number(float(value))


def _sign(x: Term) -> Term:
    below = apply("select", apply("lt", x, _like(0, x)), _like(-1, x), _like(0, x))
    return apply("select", apply("lt", _like(0, x), x), _like(1, x), below)


def _unary(build: Body) -> Callable[[Lowering, Operation], Value]:
    def lower(lowering: Lowering, operation: Operation) -> Value:
        dtype = dtype_of(operation)
        return pointwise(
            lowering,
            operation.shape,
            dtype,
            lambda x: build(as_type(x, dtype)),
            operation.first,
        )

    return lower


for _name, _function in {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "tanh": "tanh", "sigmoid": "sigmoid", "erf": "erf",
    "sin": "sin", "cos": "cos", "log1p": "log1p", "expm1": "expm1", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "round": "nearest", "neg": "neg", "abs": "abs",
}.items():  # fmt: skip
    lowers(f"{_name}.default")(_unary(lambda x, name=_function: apply(name, x)))

lowers("rsqrt.default")(_unary(lambda x: apply("div", number(1.0), apply("sqrt", x))))
lowers("reciprocal.default")(_unary(lambda x: apply("div", number(1.0), x)))
lowers("relu.default")(_unary(lambda x: apply("max", x, _like(0, x))))
lowers("log2.default")(_unary(lambda x: apply("mul", apply("log", x), number(1 / math.log(2)))))
lowers("sign.default")(_unary(_sign))


@lowers("silu.default")
def _silu(lowering: Lowering, operation: Operation) -> Value:
    return _unary(lambda x: apply("mul", x, apply("sigmoid", x)))(lowering, operation)


@lowers("gelu.default")
def _gelu(lowering: Lowering, operation: Operation) -> Value:
    tanh = operation.arguments["approximate"] == "tanh"

    def body(x: Term) -> Term:
        half = apply("mul", number(0.5), x)
        if tanh:
            cube = apply("mul", apply("mul", x, x), x)
            inner = apply("add", x, apply("mul", number(0.044715), cube))
            bent = apply("tanh", apply("mul", number(math.sqrt(2 / math.pi)), inner))
        else:
            bent = apply("erf", apply("mul", x, number(math.sqrt(0.5))))
        return apply("mul", half, apply("add", number(1.0), bent))

    return _unary(body)(lowering, operation)


@lowers("leaky_relu.default")
def _leaky_relu(lowering: Lowering, operation: Operation) -> Value:
    slope = number(float(operation.arguments["negative_slope"]))
    return _unary(
        lambda x: apply("select", apply("lt", number(0.0), x), x, apply("mul", slope, x))
    )(lowering, operation)


@lowers("elu.default")
def _elu(lowering: Lowering, operation: Operation) -> Value:
    alpha, scale, inner = (
        number(float(operation.arguments[key])) for key in ("alpha", "scale", "input_scale")
    )

    def body(x: Term) -> Term:
        low = apply("mul", alpha, apply("expm1", apply("mul", x, inner)))
        return apply("mul", scale, apply("select", apply("lt", number(0.0), x), x, low))

    return _unary(body)(lowering, operation)


@lowers(
    "hardtanh.default", "clamp.default", "clamp_min.default", "clamp_max.default", "clamp.Tensor"
)
def _clamp(lowering: Lowering, operation: Operation) -> Value:
    arguments, dtype = operation.arguments, dtype_of(operation)
    low = arguments.get("min_val", arguments.get("min"))
    high = arguments.get("max_val", arguments.get("max"))
    operands = [one for one in (low, high) if one is not None]

    def body(x: Term, *limits: Term) -> Term:
        given = iter(limits)
        if low is not None:
            x = apply("max", as_type(x, dtype), as_type(next(given), dtype))
        if high is not None:
            x = apply("min", as_type(x, dtype), as_type(next(given), dtype))
        return x

    first = next(iter(arguments.values()))
    return pointwise(lowering, operation.shape, dtype, body, first, *operands)


def _comparison(function: str, *, swapped: bool = False) -> Callable[[Lowering, Operation], Value]:
    def body(a: Term, b: Term) -> Term:
        wanted: Dtype = "float32" if "float" in (a.type, b.type) else "int32"
        a, b = as_type(a, wanted), as_type(b, wanted)
        return apply(function, b, a) if swapped else apply(function, a, b)

    def lower(lowering: Lowering, operation: Operation) -> Value:
        return pointwise(lowering, operation.shape, "bool", body, *two_operands(operation))

    return lower


for _name, (_function, _swapped) in {
    "lt": ("lt", False), "le": ("le", False), "gt": ("lt", True), "ge": ("le", True),
    "eq": ("eq", False), "ne": ("ne", False),
}.items():  # fmt: skip
    lowers(f"{_name}.Scalar", f"{_name}.Tensor")(_comparison(_function, swapped=_swapped))


@lowers("isnan.default", "isinf.default")
def _unusual(lowering: Lowering, operation: Operation) -> Value:
    def body(x: Term) -> Term:
        x = as_type(x, "float32")
        if "isnan" in operation.operator:
            return apply("ne", x, x)
        return apply("eq", apply("abs", x), number(math.inf))

    return pointwise(lowering, operation.shape, "bool", body, operation.first)


@lowers("hardshrink_backward.default", "softshrink_backward.default")
def _shrink_backward(lowering: Lowering, operation: Operation) -> Value:
    limit = number(float(operation.arguments["lambd"]))

    def body(dy: Term, x: Term) -> Term:
        return apply("select", apply("le", apply("abs", x), limit), number(0.0), dy)

    return pointwise(lowering, operation.shape, "float32", body, *two_operands(operation))


@lowers("logical_not.default", "bitwise_not.default")
def _not(lowering: Lowering, operation: Operation) -> Value:
    if dtype_of(operation) != "bool":
        raise lowering.refused(operation, "works on bits", "use truth values")

    def body(x: Term) -> Term:
        return apply("not", as_type(x, "bool"))

    return pointwise(lowering, operation.shape, "bool", body, operation.first)


@lowers("logical_and.default", "bitwise_and.Tensor", "logical_or.default", "bitwise_or.Tensor")
def _logic(lowering: Lowering, operation: Operation) -> Value:
    if dtype_of(operation) != "bool":
        raise lowering.refused(operation, "works on bits", "use truth values")
    function = "and" if "and" in operation.operator else "or"

    def body(a: Term, b: Term) -> Term:
        return apply(function, as_type(a, "bool"), as_type(b, "bool"))

    return pointwise(lowering, operation.shape, "bool", body, *two_operands(operation))


@lowers("where.self")
def _where(lowering: Lowering, operation: Operation) -> Value:
    dtype = dtype_of(operation)

    def body(condition: Term, yes: Term, no: Term) -> Term:
        return either(condition, as_type(yes, dtype), as_type(no, dtype))

    return pointwise(lowering, operation.shape, dtype, body, *operation.arguments.values())


def either(condition: Term, yes: Term, no: Term) -> Term:
    """Selects one of two terms of a type, which may be truth values."""
    if yes.type == "bool":
        return apply("or", apply("and", condition, yes), apply("and", apply("not", condition), no))
    return apply("select", condition, yes, no)


@lowers(
    "_to_copy.default",
    "clone.default",
    "alias.default",
    "detach.default",
    "lift_fresh_copy.default",
)
def _same(lowering: Lowering, operation: Operation) -> Value:
    value = lowering.value(operation.first)
    dtype = dtype_of(operation)
    if value.dtype == dtype:
        return value
    return pointwise(lowering, operation.shape, dtype, lambda x: as_type(x, dtype), value)


@lowers("copy.default")
def _copy(lowering: Lowering, operation: Operation) -> Value:
    dtype = dtype_of(operation)
    source = operation.arguments["src"]
    return pointwise(lowering, operation.shape, dtype, lambda x: as_type(x, dtype), source)


@lowers("full.default", "full_like.default", "scalar_tensor.default")
def _full(lowering: Lowering, operation: Operation) -> Value:
    arguments = operation.arguments
    return _filled(lowering, operation, arguments.get("fill_value", arguments.get("s")))


@lowers("zeros.default", "zeros_like.default", "new_zeros.default")
@lowers("empty.memory_format", "empty_like.default", "empty_permuted.default", "new_empty.default")
def _zeros(lowering: Lowering, operation: Operation) -> Value:
    return _filled(lowering, operation, 0)


@lowers("ones.default", "ones_like.default", "new_ones.default")
def _ones(lowering: Lowering, operation: Operation) -> Value:
    return _filled(lowering, operation, 1)


def _filled(lowering: Lowering, operation: Operation, value: Any) -> Value:
    dtype = dtype_of(operation)
    if isinstance(value, Ref):
        return pointwise(lowering, operation.shape, dtype, lambda x: as_type(x, dtype), value)
    return Lazy(operation.shape, dtype, lambda _: as_type(_constant(value), dtype))


@lowers("arange.start_step", "arange.default", "arange.start")
def _arange(lowering: Lowering, operation: Operation) -> Value:
    start = operation.arguments.get("start", 0)
    step = operation.arguments.get("step", 1)
    dtype = dtype_of(operation)

    def at(indices: Indices) -> Term:
        if dtype == "int32":
            return apply("add", apply("mul", indices[0], integer(step)), integer(start))
        scaled = apply("mul", apply("float", indices[0]), number(float(step)))
        return apply("add", scaled, number(float(start)))

    return Lazy(operation.shape, dtype, at)
