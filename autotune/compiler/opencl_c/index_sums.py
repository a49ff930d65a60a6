"""Index expressions of OpenCL C as sums, so that two that differ by a constant are recognised in any form."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.compiler.opencl_c.aligned_vectors import node_divisor

_LOCAL_ID = ("get_local_id(0)", "get_local_id(1)", "get_local_id(2)")


@dataclass(frozen=True)
class Names:
    """Facts about the names in an expression. All are non-negative integers.

    Attributes:
        divisors: Numbers that certainly divide their values.
        most: Their largest values, also of `get_local_id(0)` and so on; some may be missing.
    """

    divisors: Mapping[str, int] = field(default_factory=dict)
    most: Mapping[str, int] = field(default_factory=dict)


def index_sum(index: str, names: Names) -> tuple[str, int]:
    """Splits an index into an expression and an added constant. Equal expressions mostly get equal text.

    Args:
        index: Index of a buffer. No part of it is negative.
        names: Facts about its names.

    Returns:
        The expression and the constant; the index itself and 0 if it is not understood.
    """
    try:
        terms, offset = _terms(ast.parse(index.strip(), mode="eval").body, names)
    except SyntaxError:
        return index, 0
    return _text(_sum(terms)), offset


_Terms = tuple[Sequence[ast.expr], int]


def _terms(node: ast.expr, names: Names) -> _Terms:
    match node:
        case ast.Constant(value=int(value)):
            return [], value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            (some, first), (more, second) = _terms(left, names), _terms(right, names)
            return [*some, *more], first + second
        case ast.BinOp(left=left, op=operation, right=ast.Constant(value=int(by))):
            terms, offset = _terms(left, names)
            match operation:
                case ast.Mult():
                    return [_times(one, by) for one in terms if by], offset * by
                case ast.Mod() if by > 0:
                    return _rest(terms, offset, by, names)
                case ast.Div() if by > 0:
                    return _share(terms, offset, by, names)
                case ast.BitAnd() if by & (by + 1) == 0:
                    return _rest(terms, offset, by + 1, names)
                case ast.RShift():
                    return _share(terms, offset, 1 << by, names)
    return [node], 0


def _rest(terms: Sequence[ast.expr], offset: int, of: int, names: Names) -> _Terms:
    """Returns a sum modulo a number."""
    inner, factor, small, below = _split(terms, offset, of, names)
    if of == factor:
        return small, below
    most = _most(inner, names)
    if most is None or most >= of // factor:
        inner = ast.BinOp(inner, ast.Mod(), ast.Constant(of // factor))
        return [_times(inner, factor), *small], below
    more, number = _terms(inner, names)
    return [*(_times(one, factor) for one in more), *small], number * factor + below


def _share(terms: Sequence[ast.expr], offset: int, of: int, names: Names) -> _Terms:
    """Returns a sum divided by a number."""
    inner, factor, _, _ = _split(terms, offset, of, names)
    if of == factor:
        return _terms(inner, names)
    most = _most(inner, names)
    if most is not None and most < of // factor:
        return [], 0
    return [ast.BinOp(inner, ast.Div(), ast.Constant(of // factor))], 0


def _split(
    terms: Sequence[ast.expr], offset: int, of: int, names: Names
) -> tuple[ast.expr, int, Sequence[ast.expr], int]:
    """Splits a sum: an expression times a factor that divides `of`, and a remainder that changes no quotient.

    The first is a multiple of a unit that divides `of`. The remainder (terms and a constant) is certainly less than
    this unit. So there is no multiple of `of` between the first and the whole sum.
    """
    divisors = [node_divisor(one, names.divisors) for one in terms]
    unit = math.gcd(of, *divisors)  # This unit always works: no term is left over.
    for larger in sorted({of, *(math.gcd(of, one) for one in divisors)}, reverse=True):
        most = [_most(one, names) for one, by in zip(terms, divisors, strict=True) if by % larger]
        if None not in most and sum(one or 0 for one in most) + offset % larger < larger:
            unit = larger
            break
    large = [one for one, by in zip(terms, divisors, strict=True) if by % unit == 0]
    small = [one for one, by in zip(terms, divisors, strict=True) if by % unit]
    below = offset % unit
    factor = math.gcd(of, offset - below, *map(_factor, large))
    inner = _sum([_over(one, factor) for one in large], (offset - below) // factor)
    return inner, factor, small, below


def _most(node: ast.expr, names: Names) -> int | None:
    """Returns the largest value of an expression; None if it is unknown."""
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return names.most.get(name)
        case ast.Call(func=ast.Name(id="convert_int"), args=[argument]):
            return _most(argument, names)
        case ast.Call() if (text := _text(node)) in _LOCAL_ID:
            return names.most.get(text)
        case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=int(of))):
            most = _most(left, names)
            return of - 1 if most is None else min(most, of - 1)
        case ast.BinOp(left=left, op=operation, right=right):
            one, other = _most(left, names), _most(right, names)
            if one is None or other is None:
                return None
            match operation:
                case ast.Add():
                    return one + other
                case ast.Mult():
                    return one * other
                case ast.Div() if isinstance(right, ast.Constant) and other > 0:
                    return one // other
                case ast.RShift() if isinstance(right, ast.Constant):
                    return one >> other
    return None


def _times(node: ast.expr, by: int) -> ast.expr:
    by *= _factor(node)
    return node if by == 1 else ast.BinOp(_over(node, _factor(node)), ast.Mult(), ast.Constant(by))


def _factor(node: ast.expr) -> int:
    """Returns the constant factor with which a term is written."""
    match node:
        case ast.BinOp(op=ast.Mult(), right=ast.Constant(value=int(factor))):
            return factor
    return 1


def _over(node: ast.expr, by: int) -> ast.expr:
    """Returns a term divided by a number that divides its factor."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int(factor))):
            return left if factor == by else ast.BinOp(left, ast.Mult(), ast.Constant(factor // by))
    return node


def _sum(terms: Sequence[ast.expr], number: int = 0) -> ast.expr:
    parts = sorted(terms, key=_text)
    if number or not parts:
        parts.append(ast.Constant(number))
    total = parts[0]
    for one in parts[1:]:
        total = ast.BinOp(total, ast.Add(), one)
    return total


def _text(node: ast.expr) -> str:
    return ast.unparse(node)
