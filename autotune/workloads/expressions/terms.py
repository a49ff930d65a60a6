"""Scalar expressions: loop indices, constants, loads from operands, and functions of those."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from autotune.errors import UsageError

Type = Literal["float", "int", "bool"]
"""Type of a scalar: float32, int32 or a truth value."""

LEAST_INT, MOST_INT = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Axis:
    """The index of a loop, an int.

    Attributes:
        number: The loop: those of the result first, then those that are reduced.
    """

    number: int

    @property
    def type(self) -> Type:
        """``int``."""
        return "int"


@dataclass(frozen=True, slots=True)
class Constant:
    """A number.

    Attributes:
        value: Its value; a float may be infinite, but not NaN.
        type: Its type.
    """

    value: float | int | bool
    type: Type


@dataclass(frozen=True, slots=True)
class Load:
    """An element of an operand, or of an earlier stage of the same kernel.

    Attributes:
        source: Number of the operand; stages have the numbers after those of the operands.
        at: Its index along each axis, ints.
        type: Type of the element.
    """

    source: int
    at: tuple[Term, ...]
    type: Type
    _hash: int = field(init=False, repr=False, compare=False)
    """Kept: computing it again would visit the whole term."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.source, self.at, self.type)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Load, (self.source, self.at, self.type)  # Hashes differ between processes.


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of scalars.

    Attributes:
        function: A key of ``FUNCTIONS``.
        arguments: As many as the function takes.
        type: Type of the result.
    """

    function: str
    arguments: tuple[Term, ...]
    type: Type
    _hash: int = field(init=False, repr=False, compare=False)
    """Kept: computing it again would visit the whole term."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function, self.arguments, self.type)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Apply, (self.function, self.arguments, self.type)  # Hashes differ between processes.


Term = Axis | Constant | Load | Apply

_Rule = Literal["float", "same", "compare", "logic", "select", "to_float", "to_int", "int"]


@dataclass(frozen=True)
class Function:
    """What a function takes and gives.

    Attributes:
        arity: Number of arguments.
        rule: ``float``: floats to a float; ``int``: ints to an int; ``same``: floats or ints to their own
            type; ``compare``: floats or ints to a bool; ``logic``: bools to a bool; ``select``: a bool, then two
            of one type, to that type; ``to_float`` and ``to_int``: from any type.
        flops: Floating-point operations that a call counts as.
    """

    arity: int
    rule: _Rule
    flops: int = 1


def _functions(names: str, arity: int, rule: _Rule, flops: int = 1) -> dict[str, Function]:
    return {name: Function(arity, rule, flops) for name in names.split()}


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **_functions("neg abs", 1, "same"),
        **_functions("exp log sqrt tanh sigmoid erf sin cos log1p expm1", 1, "float"),
        **_functions("floor ceil trunc nearest", 1, "float"),
        **_functions("add sub mul max min", 2, "same"),
        **_functions("div pow", 2, "float"),
        **_functions("floordiv mod", 2, "int", 0),
        **_functions("lt le eq ne", 2, "compare"),
        **_functions("and or", 2, "logic", 0),
        **_functions("not", 1, "logic", 0),
        **_functions("select", 3, "select", 0),
        **_functions("float", 1, "to_float", 0),
        **_functions("int", 1, "to_int", 0),
    }
)
"""The functions of expressions. ``nearest`` rounds halves to even; ``int`` drops the fraction."""


def apply(function: str, *arguments: Term) -> Term:
    """Applies a function, and simplifies what is plain: constants of ints, neutral elements, decided selections.

    Raises:
        UsageError: There is no such function, or the arguments do not fit it.
    """
    type_ = result_type(function, [argument.type for argument in arguments])
    simple = _simplified(function, arguments)
    return Apply(function, arguments, type_) if simple is None else simple


def result_type(function: str, types: list[Type]) -> Type:
    """Returns the type of a function's result.

    Raises:
        UsageError: There is no such function, or it does not take such arguments.
    """
    known = FUNCTIONS.get(function)
    if known is None:
        raise UsageError(
            f"expressions have no function {function!r}", hint=f"known: {', '.join(FUNCTIONS)}"
        )
    fits = len(types) == known.arity
    result: Type = "float"
    match known.rule:
        case "float":
            fits = fits and set(types) == {"float"}
        case "int":
            fits, result = fits and set(types) == {"int"}, "int"
        case "same":
            fits = fits and len(set(types)) == 1 and types[0] != "bool"
            result = types[0] if types else "float"
        case "compare":
            fits, result = fits and len(set(types)) == 1 and types[0] != "bool", "bool"
        case "logic":
            fits, result = fits and set(types) == {"bool"}, "bool"
        case "select":
            fits = fits and types[0] == "bool" and types[1] == types[2]
            result = types[-1] if types else "float"
        case "to_int":
            result = "int"
        case "to_float":
            result = "float"
    if not fits:
        raise UsageError(
            f"{function} does not take ({', '.join(types)})",
            hint="see FUNCTIONS in autotune/workloads/expressions/terms.py",
        )
    return result


def number(value: float) -> Constant:
    """A float constant.

    Raises:
        UsageError: It is not a number.
    """
    if math.isnan(value):
        raise UsageError("an expression has the constant NaN", hint="use a number")
    return Constant(float(value), "float")


def integer(value: int) -> Constant:
    """An int constant.

    Raises:
        UsageError: It does not fit 32 bits.
    """
    if not LEAST_INT <= value <= MOST_INT:
        raise UsageError(f"{value} does not fit 32 bits", hint="use a smaller number")
    return Constant(int(value), "int")


def truth(value: bool) -> Constant:
    """A bool constant."""
    return Constant(bool(value), "bool")


def all_of(*conditions: Term) -> Term:
    """Whether every condition holds; true without one."""
    result: Term = truth(True)
    for condition in conditions:
        result = apply("and", result, condition)
    return result


def clamped(index: Term, size: int) -> Term:
    """An index that is brought into 0 .. size - 1."""
    return apply("min", apply("max", index, integer(0)), integer(size - 1))


def inside(index: Term, size: int) -> Term:
    """Whether an index lies in 0 .. size - 1."""
    return all_of(apply("le", integer(0), index), apply("lt", index, integer(size)))


def parts(term: Term) -> tuple[Term, ...]:
    """The terms that a term is made of."""
    match term:
        case Load():
            return term.at
        case Apply():
            return term.arguments
        case _:
            return ()


def walk(term: Term) -> Iterator[Term]:
    """Yields a term and all that it is made of, each distinct one once, parts first."""
    seen: set[Term] = set()
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        current, ready = stack.pop()
        if current in seen:
            continue
        if ready:
            seen.add(current)
            yield current
            continue
        stack.append((current, True))
        stack.extend((part, False) for part in parts(current))


def replaced(term: Term, axes: Mapping[int, Term], sources: Mapping[int, int]) -> Term:
    """Returns a term with other terms for its axes, and other numbers for its sources.

    Args:
        term: The term.
        axes: What takes the place of an axis, by its number; others stay.
        sources: The new number of a source, by the old one; others stay.
    """

    def load_of(load: Load, at: tuple[Term, ...]) -> Term:
        return Load(sources.get(load.source, load.source), at, load.type)

    return rewritten(term, load_of, lambda axis: axes.get(axis.number, axis))


def rewritten(
    term: Term,
    load_of: Callable[[Load, tuple[Term, ...]], Term],
    axis_of: Callable[[Axis], Term] = lambda axis: axis,
) -> Term:
    """Returns a term with other loads and axes.

    Args:
        term: The term.
        load_of: What takes the place of a load, from its index, which is rewritten already.
        axis_of: What takes the place of an axis.
    """
    done: dict[Term, Term] = {}
    for current in walk(term):
        match current:
            case Axis():
                done[current] = axis_of(current)
            case Constant():
                done[current] = current
            case Load():
                done[current] = load_of(current, tuple(done[one] for one in current.at))
            case Apply():
                done[current] = apply(
                    current.function, *[done[argument] for argument in current.arguments]
                )
    return done[term]


def _simplified(function: str, arguments: tuple[Term, ...]) -> Term | None:
    values = [one.value if isinstance(one, Constant) else None for one in arguments]
    match function, arguments, values:
        case ("select", (_, yes, no), (chosen, *_)) if chosen is not None or yes == no:
            return yes if chosen or yes == no else no
        case (("and" | "or"), (first, second), (a, b)) if a is not None or b is not None:
            known, other = (a, second) if a is not None else (b, first)
            return other if bool(known) == (function == "and") else truth(function == "or")
        case ("not", _, (bool() as value,)):
            return truth(not value)
        case ("not", (Apply(function="not", arguments=(inner,)),), _):
            return inner
        case (("add" | "sub"), (first, _), (_, 0)):
            return first
        case ("add", (_, second), (0, _)):
            return second
        case (("mul" | "div" | "floordiv"), (first, _), (_, 1)):
            return first
        case ("mul", (_, second), (1, _)):
            return second
        case (
            "div",
            (Apply(function="mul", arguments=(inner, Constant(value=times))), _),
            (_, by),
        ) if by == times:
            return inner
        case ("float", (Constant(),), (value,)):
            return number(float(value or 0))
        case _:
            pass
    if all(isinstance(one, Constant) and one.type == "int" for one in arguments):
        return _folded(function, [int(value or 0) for value in values])
    if function == "add" and values[1] is not None and arguments[0].type == "int":
        match arguments[0]:
            case Apply(function="add", arguments=(inner, Constant(value=before))):
                return apply("add", inner, integer(int(before) + int(values[1])))
            case _:
                return None
    return None


def _folded(function: str, values: list[int]) -> Term | None:
    """The value of a function of int constants; None where it has none."""
    match function, values:
        case ("add", (a, b)):
            return _fitting(a + b)
        case ("sub", (a, b)):
            return _fitting(a - b)
        case ("mul", (a, b)):
            return _fitting(a * b)
        case ("max", (a, b)):
            return integer(max(a, b))
        case ("min", (a, b)):
            return integer(min(a, b))
        case ("floordiv", (a, b)) if b > 0:
            return integer(a // b)
        case ("mod", (a, b)) if b > 0:
            return integer(a % b)
        case ("lt", (a, b)):
            return truth(a < b)
        case ("le", (a, b)):
            return truth(a <= b)
        case ("eq", (a, b)):
            return truth(a == b)
        case ("ne", (a, b)):
            return truth(a != b)
        case _:
            return None


def _fitting(value: int) -> Term | None:
    return integer(value) if LEAST_INT <= value <= MOST_INT else None
