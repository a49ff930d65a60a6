"""Functions of float32 as polynomials on processors, so that LLVM can compute them in vectors.

LLVM calls the C library for exp, log and tanh, once for each element: phones have no vector version. That takes ten
times as long as reading the element. The methods are those of W. J. Cody and W. Waite, Software Manual for the
Elementary Functions (1980). The coefficients are minimax fits of this project: least squares at Chebyshev points,
weighted again until the largest relative errors are equal (Lawson's algorithm). Results are within 3 units in the
last place of the exact value, except for `sigmoid` and `erf`, which are within 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import Any

_LEVEL = 200  # Above the rules of TVM.
_ACTIVE = ContextVar("autotune.vector_math", default=False)

_EXP = (0.49999994, 0.16666521, 0.04166839, 0.0083687175, 0.0013814596)
_LOG = (
    0.33333313, -0.25000009, 0.20002119, -0.16667996, 0.14219551, -0.12405591, 0.11888175,
    -0.11675641, 0.067466013,
)  # fmt: skip
_TANH = (-0.33333281, 0.13331442, -0.053739712, 0.020639079, -0.0057049785)
_ERF_SMALL = (
    1.1283791, -0.37612626, 0.11283585, -0.026853811, 0.0051883277, -0.00080101925, 7.8538576e-05
)  # fmt: skip
_ERF_LARGE = (0.0018224810, 0.25970063, 0.39680204, -0.064460591, 0.63668001, -0.23080166)
# Their sum is log(2). The first has few bits, so that its products with small integers are exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_LEAST_NORMAL = 1.17549435e-38
_ROOT_HALF_BITS = 0x3F3504F3


@contextmanager
def vector_math() -> Iterator[None]:
    """While open, TVM compiles exp, log, tanh, sigmoid and erf of float32 for LLVM as polynomials."""
    _register()
    before = _ACTIVE.set(True)
    try:
        yield
    finally:
        _ACTIVE.reset(before)


@cache
def _register() -> None:
    from tvm import ir
    from tvm.tirx import register_intrin_lowering

    def rule(name: str, method: Callable[[Any], Any]) -> Callable[[Any], Any]:
        before = ir.Op.get(name).get_attr("llvm.FLowerIntrinsic")
        if before is None:
            before = ir.Op.get(name).get_attr("default.FLowerIntrinsic")

        def lowered(call: Any) -> Any:
            (x,) = call.args
            if not _ACTIVE.get() or not _dtype(x).startswith("float32"):
                return call if before is None else before(call)
            return method(x)

        return lowered

    for name, method in _METHODS.items():
        register_intrin_lowering(
            f"tirx.{name}", target="llvm", f=rule(f"tirx.{name}", method), level=_LEVEL
        )


def _exp(x: Any) -> Any:
    """2**n exp(r), where x = n log(2) + r."""
    from tvm import tirx

    number = _Number(x)
    near = number.let(tirx.min(tirx.max(x, number(-105.0)), number(90.0)))
    whole = number.let(tirx.floor(near * number(1.0 / math.log(2.0)) + number(0.5)))
    rest = number.let(near - whole * number(_LN2_HIGH) - whole * number(_LN2_LOW))
    value = number(1.0) + rest + rest * rest * number.polynomial(rest, _EXP)
    power = number.let(whole.astype(number.ints))
    half = number.let(
        power >> number.int(1)
    )  # 2**128 is no float, but a result can have this factor.
    scaled = value * number.power_of_two(half) * number.power_of_two(power - half)
    return number.done(tirx.Select(tirx.isnan(x), x, scaled))


def _log(x: Any) -> Any:
    """e log(2) + log(1 + f), where x = 2**e (1 + f) and 1 + f is around 1."""
    from tvm import tirx

    number = _Number(x)
    tiny = x < number(_LEAST_NORMAL)
    bits = number.let(tirx.reinterpret(number.ints, tirx.Select(tiny, x * number(2.0**23), x)))
    exponent = number.let((bits - number.int(_ROOT_HALF_BITS)) >> number.int(23))
    f = number.let(
        tirx.reinterpret(number.floats, bits - (exponent << number.int(23))) - number(1.0)
    )
    e = number.let(exponent.astype(number.floats) - tirx.Select(tiny, number(23.0), number(0.0)))
    square = number.let(f * f)
    small = square * f * number.polynomial(f, _LOG) + e * number(_LN2_LOW) - number(0.5) * square
    value = small + f + e * number(_LN2_HIGH)
    infinite = number(math.inf)
    positive = tirx.Select(x < infinite, value, x)
    other = tirx.Select(x.equal(number(0.0)), -infinite, number(math.nan))
    return number.done(tirx.Select(x > number(0.0), positive, other))


def _tanh(x: Any) -> Any:
    """A polynomial near 0; elsewhere 1 - 2 / (exp(2 |x|) + 1), with the sign of x."""
    from tvm import tirx

    number = _Number(x)
    size = number.let(tirx.Select(x < number(0.0), -x, x))
    square = number.let(x * x)
    small = x + x * square * number.polynomial(square, _TANH)
    large = number.let(number(1.0) - number(2.0) / (tirx.exp(size + size) + number(1.0)))
    signed = tirx.Select(x < number(0.0), -large, large)
    return number.done(tirx.Select(size < number(0.625), small, signed))


def _sigmoid(x: Any) -> Any:
    from tvm import tirx

    number = _Number(x)
    return number.done(number(1.0) / (number(1.0) + tirx.exp(-x)))


def _erf(x: Any) -> Any:
    """A polynomial near 0; elsewhere 1 - exp(-x**2) q(1 / (1 + |x| / 2)), with the sign of x."""
    from tvm import tirx

    number = _Number(x)
    size = number.let(tirx.Select(x < number(0.0), -x, x))
    square = number.let(x * x)
    small = x * number.polynomial(square, _ERF_SMALL)
    near = number.let(number(1.0) / (number(1.0) + number(0.5) * size))
    far = tirx.exp(-square) * number.polynomial(near, _ERF_LARGE)
    large = number.let(number(1.0) - far)
    signed = tirx.Select(x < number(0.0), -large, large)
    return number.done(tirx.Select(size < number(1.0), small, signed))


_METHODS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"exp": _exp, "log": _log, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf}
)


class _Number:
    """Makes expressions of the type of an argument, a vector or not, and names their parts.

    Args:
        x: The argument.
    """

    def __init__(self, x: Any) -> None:
        self.floats = _dtype(x)
        self.ints = self.floats.replace("float", "int")
        self._named: list[tuple[Any, Any]] = []

    def __call__(self, value: float) -> Any:
        """Returns a constant, in each lane."""
        return self._constant(value, self.floats)

    def int(self, value: int) -> Any:
        """Returns a constant integer, in each lane."""
        return self._constant(value, self.ints)

    def let(self, value: Any) -> Any:
        """Names a value, so that it is computed once; returns its name."""
        from tvm import tirx

        variable = tirx.Var(f"m{len(self._named)}", _dtype(value))
        self._named.append((variable, value))
        return variable

    def done(self, result: Any) -> Any:
        """Returns the result with the named values in front of it."""
        from tvm import tirx

        for variable, value in reversed(self._named):
            result = tirx.Let(variable, value, result)
        return result

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """Returns c0 + c1 x + c2 x**2 + ..., by Horner's rule."""
        *rest, value = map(self, coefficients)
        for one in reversed(rest):
            value = value * x + one
        return value

    def power_of_two(self, exponent: Any) -> Any:
        """Returns 2**exponent, for an exponent from -126 to 127."""
        from tvm import tirx

        return tirx.reinterpret(self.floats, (exponent + self.int(127)) << self.int(23))

    @staticmethod
    def _constant(value: float, dtype: str) -> Any:
        from tvm import tirx

        scalar, _, lanes = dtype.partition("x")
        one = tirx.const(value, scalar)
        return tirx.Broadcast(one, int(lanes)) if lanes else one


def _dtype(expression: Any) -> str:
    return str(expression.ty.dtype)
