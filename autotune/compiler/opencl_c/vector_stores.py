"""Stores results of OpenCL kernels as vectors if a work-item has neighbouring elements.

TVM stores them one by one, since some may lie beyond the end. A compiler cannot join these stores, because it can
only assume pointers to be aligned to one element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.compiler.opencl_c.aligned_vectors import divisor, divisors
from autotune.compiler.opencl_c.index_sums import Names, index_sum
from autotune.compiler.opencl_c.kernel_text import KernelText, kernel_name, with_kernels
from autotune.compiler.programs import functions_of

_WIDTHS = (4, 2)
"""Elements of a store, at most 16 bytes: the most that a work-item moves at once on the GPUs that we know."""

_ITEMS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_RESULT = re.compile(r"__global float\* (?:restrict )?(\w+)")
_STORE = re.compile(r"^( *)(\w+)\[(.+?)\] = (.+);$")
_NAME = re.compile(r"^ *int \w+ = ([^\[]+);$")
_CALL = re.compile(r"(\w+|\*)\(")
_PURE = {"convert_int", "get_group_id", "get_local_id"}
_BRANCH = re.compile(r"^( *)if \((.+)\) \{$")


@dataclass(frozen=True)
class _Store:
    """A store to an element of a buffer. Its index is a base expression plus an offset."""

    buffer: str
    index: str
    base: str
    offset: int
    value: str


@dataclass(frozen=True)
class _Stores:
    """Lines that only store, all under one condition, after lines that only define numbers."""

    indent: str
    condition: str
    names: Sequence[str]
    lines: Sequence[str]
    stores: Sequence[_Store]

    def follows(self, other: _Stores) -> bool:
        """Returns whether it could share a branch with the stores before it."""
        return (self.indent, self.condition) == (other.indent, other.condition)


GroupSizes = Mapping[str, Sequence[int]]
"""Work-items of a group of each kernel, by name, in three dimensions."""


def group_sizes(module: Any) -> GroupSizes:
    """Returns the sizes of the work-groups of a scheduled `tvm.IRModule`."""
    found: dict[str, list[int]] = {}
    for function, schedule, blocks in functions_of(module):
        outermost, kernels = None, 0
        for block in blocks:
            loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
            if not loops:
                continue
            if not loops[0].same_as(outermost):  # Each loop nest is a kernel.
                outermost = loops[0]
                size = found[kernel_name(function, kernels)] = [1, 1, 1]
                kernels += 1
            for loop in loops:
                tag = "" if loop.thread_binding is None else str(loop.thread_binding.thread_tag)
                if tag in _ITEMS:
                    size[_ITEMS.index(tag)] = int(loop.extent)
    return found


def with_vector_stores(source: str, sizes: GroupSizes) -> str:
    """Returns OpenCL C written by TVM with consecutive stores of one work-item to neighbouring elements as vectors.

    Stores are joined if their address is certainly aligned. Buffers begin aligned to 64 bytes, which TVM requires
    of every tensor. We assume that no element is stored twice in a row, since no schedule does that. If a buffer is
    read next to stores to it, these stores stay as they are.

    Args:
        source: The source.
        sizes: See `group_sizes`.
    """
    return with_kernels(source, lambda kernel: _rewritten(kernel, sizes))


def _rewritten(kernel: KernelText, sizes: GroupSizes) -> str:
    buffers = frozenset(_RESULT.findall(kernel.signature))
    size = enumerate(sizes.get(kernel.name, ()))
    most = {f"get_local_id({axis})": items - 1 for axis, items in size}
    known = Names(divisors(kernel.body), most)
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


def _stores(lines: Sequence[str], at: int, buffers: frozenset[str], known: Names) -> _Stores | None:
    """Returns the store at the start of the lines, or the branch that only stores; None if there is neither."""
    start = next((n for n in range(at, len(lines)) if not _names_a_number(lines[n])), at)
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


def _names_a_number(line: str) -> bool:
    """Returns whether a line defines a number that depends only on other numbers, not on memory."""
    found = _NAME.match(line)
    return found is not None and set(_CALL.findall(found[1])) <= _PURE


def _store(line: str, buffers: frozenset[str], known: Names) -> tuple[str, _Store] | None:
    found = _STORE.match(line)
    if not found or found[2] not in buffers:
        return None
    indent, buffer, index, value = found.groups()
    base, offset = index_sum(index, known)
    return indent, _Store(buffer, index, base, offset, value)


def _joined(run: Sequence[_Stores], known: Names) -> Iterator[str]:
    """Yields the lines of neighbouring stores under one condition, with vectors where possible."""
    stores = [store for some in run for store in some.stores]
    places = {(one.buffer, one.base, one.offset): one for one in stores}
    read = " ".join([run[0].condition, *(f"{one.index} {one.value}" for one in stores)])
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


def _vectors(places: Mapping[_Place, _Store], known: Names) -> dict[_Place, Sequence[_Place]]:
    """Returns the places where vectors begin, with all places of each vector."""
    found: dict[_Place, Sequence[_Place]] = {}
    taken: set[_Place] = set()
    aligned = {base: divisor(base, known.divisors) for _, base, _ in places}
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
