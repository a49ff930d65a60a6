"""Finds kernels, and accesses of a buffer, in the OpenCL C that TVM writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_KERNEL = re.compile(r"^__kernel void (\w+)\((.*)\) \{$", re.MULTILINE)
_DECLARATION = re.compile(r"^__kernel void \w+\(.*\);\n", re.MULTILINE)
_POINTER = re.compile(r"\(\*\(\((?:__\w+ )?float(\d+)\*\)\($")
_LONGEST_POINTER = len("(*((__global float16*)(")


@dataclass(frozen=True)
class KernelText:
    """A kernel's definition.

    Attributes:
        name: Name of the kernel.
        signature: Its parameters.
        body: The text from the opening brace to the next kernel.
    """

    name: str
    signature: str
    body: str

    def __str__(self) -> str:
        return f"__kernel void {self.name}({self.signature}) {{{self.body}"

    def of(self, function: str) -> bool:
        """Returns whether the host function of this name launches the kernel."""
        return re.fullmatch(rf"{re.escape(function)}_kernel(_\d+)?", self.name) is not None


@dataclass(frozen=True)
class Access:
    """A load or a store of a buffer.

    Attributes:
        begin, end: Its position in the text, without the semicolon.
        lanes: Number of neighbouring elements. The address is certainly a multiple of it.
        index: Expression of the first element's index.
        value: The stored value; None for a load.
    """

    begin: int
    end: int
    lanes: int
    index: str
    value: str | None


def kernel_name(function: str, number: int) -> str:
    """Returns TVM's name for the kernel that a host function launches as number `number`, from 0."""
    return f"{function}_kernel_{number}" if number else f"{function}_kernel"


def kernels(source: str) -> list[KernelText]:
    """Returns the kernels of a source."""
    found = list(_KERNEL.finditer(source))
    ends = [*(one.start() for one in found[1:]), len(source)]
    return [
        KernelText(one[1], one[2], source[one.end() : end])
        for one, end in zip(found, ends, strict=True)
    ]


def with_kernels(source: str, rewrite: Callable[[KernelText], str]) -> str:
    """Returns a source with each kernel rewritten, and without the declarations that TVM puts before kernels."""
    source = _DECLARATION.sub("", source)
    starts = [found.start() for found in _KERNEL.finditer(source)]
    head, *parts = [source[begin:end] for begin, end in pairwise([0, *starts, len(source)])]
    return "".join([head, *(rewrite(one) for part in parts for one in kernels(part))])


def accesses(body: str, name: str) -> list[Access] | None:
    """Returns all accesses of a buffer in a body; None if one is neither of an element nor of an aligned vector."""
    found = [
        _element(body, place) if body.startswith("[", place.end()) else _vector(body, place)
        for place in re.finditer(rf"\b{name}\b(?!\[\d+\] __attribute__)", body)
    ]
    return [one for one in found if one] if all(found) else None


def _element(body: str, name: re.Match[str]) -> Access:
    """Returns the access `name[index]`, or the store if ` = value` follows."""
    close = _closing(body, name.end() + 1, "[]")
    index = body[name.end() + 1 : close]
    return _access(body, name.start(), close + 1, 1, index, last=";")


def _vector(body: str, name: re.Match[str]) -> Access | None:
    """Returns the access `(*((space floatN*)(name + index)))`, or with ` = value` before the last parenthesis."""
    pointer = _POINTER.search(body, max(0, name.start() - _LONGEST_POINTER), name.start())
    if pointer is None or not body.startswith(" + ", name.end()):
        return None
    close = _closing(body, name.end(), "()")
    index = body[name.end() + 3 : close]
    found = _access(body, pointer.start(), close + 2, int(pointer[1]), index, last=")")
    return replace(found, end=found.end + 1)


def _access(body: str, begin: int, end: int, lanes: int, index: str, *, last: str) -> Access:
    """Returns an access that ends at `end`, or a store that ends before `last`."""
    if not body.startswith(" = ", end):
        return Access(begin, end, lanes, index, None)
    stop = body.index(last, end) if last == ";" else _closing(body, end, "()")
    return Access(begin, stop, lanes, index, body[end + len(" = ") : stop])


def _closing(text: str, begin: int, pair: str) -> int:
    """Returns the position where the bracket that is open at `begin` closes."""
    depth = 1
    for position in range(begin, len(text)):
        depth += (text[position] == pair[0]) - (text[position] == pair[1])
        if depth == 0:
            return position
    raise ValueError("a bracket without an end in OpenCL source")


def replaced(body: str, found: Sequence[Access], text: Callable[[Access], str]) -> str:
    """Returns a body with accesses rewritten. A stored value is kept where `text` puts it."""
    pieces, position = [], 0
    for one in found:
        pieces += [body[position : one.begin], text(one)]
        position = one.end
    return "".join([*pieces, body[position:]])
