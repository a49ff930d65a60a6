"""Results of OpenCL kernels stored as vectors where a work-item has neighbours.

TVM stores them one by one, since some may lie beyond the end, and a compiler cannot join them: no pointer is surely
aligned to more than an element.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune.compiler.aligned_vectors import divisor, divisors
from autotune.compiler.kernel_text import KernelText, with_kernels

_WIDTHS = (4, 2)
"""Elements of a store, of 16 bytes at most: what a work-item moves at once on the GPUs that we know of."""

_RESULT = re.compile(r"__global float\* (?:restrict )?(\w+)")
_STORE = re.compile(r"^( *)(\w+)\[(.+?)\] = (.+);$")
_NAME = re.compile(r"^ *int \w+ = [^\[]+;$")
"""A number that follows from others, whatever memory holds."""
_BRANCH = re.compile(r"^( *)if \((.+)\) \{$")


@dataclass(frozen=True)
class _Store:
    """An element of a buffer that is written; its index is an offset from a base, an expression."""

    buffer: str
    index: str
    base: str
    offset: int
    value: str


@dataclass(frozen=True)
class _Stores:
    """Lines that do nothing but store, all under one condition, after some that only name numbers."""

    indent: str
    condition: str
    names: Sequence[str]
    lines: Sequence[str]
    stores: Sequence[_Store]

    def follows(self, other: _Stores) -> bool:
        """Whether it could stand in one branch with those before it."""
        return (self.indent, self.condition) == (other.indent, other.condition)


def with_vector_stores(source: str) -> str:
    """OpenCL C as TVM writes it, with neighbouring elements that one work-item stores in a row stored as vectors,
    where their address is surely aligned.

    Buffers begin aligned to 64 bytes, which TVM asks of every tensor.
    """
    return with_kernels(source, _rewritten)


def _rewritten(kernel: KernelText) -> str:
    buffers = frozenset(_RESULT.findall(kernel.signature))
    known = divisors(kernel.body)
    lines = str(kernel).split("\n")
    written: list[str] = []
    run: list[_Stores] = []
    at = 0
    while at < len(lines):
        found = _stores(lines, at, buffers, known)
        if run and not (found and found.follows(run[-1])):
            written += _joined(run, known)
            run = []
        if found:
            run.append(found)
            at += len(found.names) + len(found.lines)
        else:
            written.append(lines[at])
            at += 1
    return "\n".join(written)


def _stores(
    lines: Sequence[str], at: int, buffers: frozenset[str], known: Mapping[str, int]
) -> _Stores | None:
    """The store that lines begin with, or the branch that does nothing else."""
    start = next((n for n in range(at, len(lines)) if not _NAME.match(lines[n])), at)
    names = lines[at:start]
    if one := _store(lines[start], buffers, known):
        return _Stores(one[0], "", names, lines[start : start + 1], [one[1]])
    branch = _BRANCH.match(lines[start])
    if not branch:
        return None
    stores = []
    for end in range(start + 1, len(lines)):
        if one := _store(lines[end], buffers, known):
            stores.append(one[1])
        elif lines[end] == f"{branch[1]}}}":
            return _Stores(branch[1], branch[2], names, lines[start : end + 1], stores)
        else:
            return None
    return None


def _store(
    line: str, buffers: frozenset[str], known: Mapping[str, int]
) -> tuple[str, _Store] | None:
    found = _STORE.match(line)
    if not found or found[2] not in buffers:
        return None
    indent, buffer, index, value = found.groups()
    base, offset = parted(index, known)
    return indent, _Store(buffer, index, base, offset, value)


def _joined(run: Sequence[_Stores], known: Mapping[str, int]) -> Iterator[str]:
    """The lines of neighbouring stores under one condition, with vectors where there are some."""
    stores = [store for some in run for store in some.stores]
    places = {(one.buffer, one.base, one.offset): one for one in stores}
    read = " ".join(one.value for one in stores)
    again = len(places) < len(stores)
    own = any(re.search(rf"\b{name}\b", read) for name in {one.buffer for one in stores})
    vectors = {} if again or own else _vectors(places, known)
    if not vectors:
        for some in run:
            yield from (*some.names, *some.lines)
        return
    for some in run:
        yield from some.names
    indent, condition = run[0].indent, run[0].condition
    inner = f"{indent}  " if condition else indent
    if condition:
        yield f"{indent}if ({condition}) {{"
    inside = {lane for lanes in vectors.values() for lane in lanes}
    for place, one in places.items():
        if lanes := vectors.get(place):
            kind = f"float{len(lanes)}"
            values = ", ".join(places[lane].value for lane in lanes)
            yield f"{inner}*((__global {kind}*)({one.buffer} + {one.index})) = ({kind})({values});"
        elif place not in inside:
            yield f"{inner}{one.buffer}[{one.index}] = {one.value};"
    if condition:
        yield f"{indent}}}"


_Place = tuple[str, str, int]


def _vectors(
    places: Mapping[_Place, _Store], known: Mapping[str, int]
) -> dict[_Place, Sequence[_Place]]:
    """The places that vectors begin at, with all of theirs."""
    found: dict[_Place, Sequence[_Place]] = {}
    taken: set[_Place] = set()
    aligned = {base: divisor(base, known) for _, base, _ in places}
    for width in _WIDTHS:
        for place in places:
            buffer, base, offset = place
            lanes = [(buffer, base, offset + lane) for lane in range(width)]
            if aligned[base] % width or offset % width or not taken.isdisjoint(lanes):
                continue
            if all(lane in places for lane in lanes):
                found[place] = lanes
                taken.update(lanes)
    return found


def parted(index: str, known: Mapping[str, int]) -> tuple[str, int]:
    """An integer expression of C as another one and a number that is added to it.

    Args:
        index: The expression, not negative anywhere in it.
        known: What surely divides the value of a name.

    Returns:
        Both; the expression itself and 0 where it is not understood.
    """
    try:
        base, offset = _parted(ast.parse(index.strip(), mode="eval").body, known)
    except SyntaxError:
        return index, 0
    return ast.unparse(base), offset


def _parted(node: ast.expr, known: Mapping[str, int]) -> tuple[ast.expr, int]:
    match node:
        case ast.Constant(value=int(value)):
            return ast.Constant(0), value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            (one, first), (other, second) = _parted(left, known), _parted(right, known)
            return _sum(one, other), first + second
        case ast.BinOp(
            left=left, op=ast.Mult() as times, right=ast.Constant(value=int(by)) as right
        ):
            base, offset = _parted(left, known)
            return (base if _zero(base) else ast.BinOp(base, times, right)), offset * by
        case ast.BinOp(
            left=left, op=ast.Mod() | ast.Div() as share, right=ast.Constant(value=int(of)) as right
        ):
            base, offset = _parted(left, known)
            # From a multiple of what divides `of` too, to the next one, there is no multiple of `of`.
            beyond = offset % math.gcd(divisor(ast.unparse(base), known), of)
            base = _sum(base, ast.Constant(offset - beyond))
            return ast.BinOp(base, share, right), beyond if isinstance(share, ast.Mod) else 0
    return node, 0


def _sum(one: ast.expr, other: ast.expr) -> ast.expr:
    if _zero(one):
        return other
    return one if _zero(other) else ast.BinOp(one, ast.Add(), other)


def _zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0
