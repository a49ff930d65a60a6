"""Replaces vector accesses of OpenCL kernels by aligned ones where the addresses are aligned.

TVM writes `vloadN` and `vstoreN`. OpenCL defines these for addresses that are aligned to one element only (OpenCL C
1.2, section 6.12.7), so compilers make N loads of them. An access through a vector pointer is one load.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.compiler.opencl_c.kernel_text import with_kernels

_ARRAY = re.compile(r"^(\s*)((?:__local )?)(float|half|int)(\d*) (\w+)\[(\d+)\];$", re.MULTILINE)
_PARAMETER = re.compile(r"__global (float|half|int)\* (?:restrict )?(\w+)")
_VALUE = re.compile(r"\bint (\w+) = (.*);$", re.MULTILINE)
_ACCESS = re.compile(r"\b(vload|vstore)(2|4|8|16)\(")


def with_aligned_vectors(source: str) -> str:
    """Returns OpenCL C written by TVM, with aligned `vloadN` and `vstoreN` replaced by vector accesses.

    An access is replaced if its address is certainly aligned to N elements. Buffers begin aligned to 64 bytes,
    which TVM requires of every tensor. Arrays of a kernel are declared so.
    """
    return with_kernels(source, lambda kernel: _rewritten(str(kernel)))


@dataclass(frozen=True)
class _Memory:
    """What a pointer points to: its address space (empty for a work-item's own memory) and the element type."""

    space: str
    element: str


def _rewritten(kernel: str) -> str:
    memories = {name: _Memory("__global", kind) for kind, name in _PARAMETER.findall(kernel)}
    for _, space, kind, width, name, _ in _ARRAY.findall(kernel):
        if not width:
            memories[name] = _Memory(space.strip(), kind)
    return _accesses(_ARRAY.sub(_aligned, kernel), memories, divisors(kernel))


def divisors(kernel: str) -> dict[str, int]:
    """Returns numbers that certainly divide the values of a kernel's integers, by name."""
    known: dict[str, int] = {}
    for name, value in _VALUE.findall(kernel):
        # A name that is defined twice gets the common divisor of both values.
        known[name] = math.gcd(known.get(name, 0), divisor(value, known))
    return known


def _aligned(found: re.Match[str]) -> str:
    indent, space, kind, width, name, size = found.groups()
    if width:
        return found[0]
    return f"{indent}{space}{kind} {name}[{size}] __attribute__((aligned(64)));"


def _accesses(text: str, memories: Mapping[str, _Memory], known: Mapping[str, int]) -> str:
    pieces, position = [], 0
    while found := _ACCESS.search(text, position):
        pieces.append(text[position : found.start()])
        arguments, position = _arguments(text, found.end())
        arguments = [_accesses(one, memories, known) for one in arguments]
        pieces.append(_access(found[1], int(found[2]), arguments, memories, known))
    return "".join([*pieces, text[position:]])


def _arguments(text: str, begin: int) -> tuple[list[str], int]:
    """Returns the arguments of a call whose parenthesis opens just before `begin`, and the call's end."""
    depth, arguments, start = 1, [], begin
    for position in range(begin, len(text)):
        character = text[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        if depth == 0 or (depth == 1 and character == ","):
            arguments.append(text[start:position].strip())
            start = position + 1
        if depth == 0:
            return arguments, position + 1
    raise ValueError("a call without an end in OpenCL source")


def _access(
    kind: str,
    lanes: int,
    arguments: list[str],
    memories: Mapping[str, _Memory],
    known: Mapping[str, int],
) -> str:
    unchanged = f"{kind}{lanes}({', '.join(arguments)})"
    *values, offset, address = arguments
    pointer, plus, index = address.partition(" + ")
    memory = memories.get(pointer)
    if memory is None or offset != "0" or not plus or divisor(index, known) % lanes:
        return unchanged
    vector = f"{memory.space} {memory.element}{lanes}*".strip()
    place = f"*(({vector})({address}))"
    return f"({place})" if kind == "vload" else f"({place} = {values[0]})"


def divisor(text: str, known: Mapping[str, int]) -> int:
    """Returns a number that certainly divides an integer expression of C; 0 if the expression is zero.

    Args:
        text: The expression. For one that is not understood, the result is 1.
        known: Known divisors of names.
    """
    try:
        return node_divisor(ast.parse(text.strip(), mode="eval").body, known)
    except SyntaxError:
        return 1


def node_divisor(node: ast.expr, known: Mapping[str, int]) -> int:
    """Like `divisor`, for a parsed expression."""
    match node:
        case ast.Constant(value=int(value)):
            return abs(value)
        case ast.Name(id=name):
            return known.get(name, 1)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return node_divisor(operand, known)
        case ast.Call(func=ast.Name(id="convert_int"), args=[argument]):
            return node_divisor(argument, known)
        case ast.BinOp(left=left, op=operation, right=right):
            return _of_both(node_divisor(left, known), operation, right, known)
    return 1


def _of_both(left: int, operation: ast.operator, node: ast.expr, known: Mapping[str, int]) -> int:
    right = node_divisor(node, known)
    constant = node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
    match operation:
        case ast.Add() | ast.Sub():
            return math.gcd(left, right)
        case ast.Mult():
            return left * right
        case ast.Mod() if constant:
            return math.gcd(left, constant)
        case ast.LShift() if constant is not None:
            return left << constant
        case ast.BitAnd() if constant:
            # The trailing zero bits of either operand remain.
            return max(left & -left, constant & -constant) if left else 0
        case ast.Div() if constant:
            return left // constant if left % constant == 0 else 1
        case ast.RShift() if constant is not None:
            return left >> constant if left % (1 << constant) == 0 else 1
    return 1
