"""Gives a stage as few loops as it needs: none of size 1, and one for axes that are always read together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.workloads.expressions import (
    Apply,
    Axis,
    Load,
    Operand,
    Stage,
    Term,
    integer,
    replaced,
    rewritten,
    walk,
)


@dataclass(frozen=True)
class Read:
    """A stored tensor in the shape in which a kernel reads it.

    Attributes:
        tensor: Its name.
        operand: Shape and type; only the number of elements is that of the tensor.
    """

    tensor: str
    operand: Operand


def compact(stage: Stage, reads: Sequence[Read]) -> tuple[Stage, list[Read]]:
    """Compacts the loops of a stage.

    Args:
        stage: The stage; its loads have the numbers of ``reads`` as their sources.
        reads: What it may read.

    Returns:
        The stage, whose loads are numbered anew, and what it reads, in that order.
    """
    used = {term.source for term in walk(stage.body) if isinstance(term, Load)}
    known = _Reads({number: reads[number] for number in used}, len(reads))
    stage = _without_units(stage)
    while (axis := _mergeable(stage, known)) is not None:
        stage = _merged(stage, axis, known)
    return _numbered(stage, known)


class _Reads:
    """Reads by number, to which some are added.

    Args:
        reads: Those that a stage has.
        free: A number from which on none is in use.
    """

    def __init__(self, reads: Mapping[int, Read], free: int) -> None:
        self._reads = dict(reads)
        self._numbers = {read: number for number, read in reads.items()}
        self._free = free

    def __getitem__(self, number: int) -> Read:
        return self._reads[number]

    def number(self, read: Read) -> int:
        if read not in self._numbers:
            self._numbers[read] = self._free
            self._reads[self._free] = read
            self._free += 1
        return self._numbers[read]


def _without_units(stage: Stage) -> Stage:
    sizes = (*stage.shape, *stage.reduced)
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    axes: dict[int, Term] = {axis: integer(0) for axis in range(len(sizes))}
    axes |= {axis: Axis(at) for at, axis in enumerate(long)}
    shape = tuple(size for size in stage.shape if size > 1)
    if not shape:
        shape = (1,)  # A result has an axis, which nothing is read along.
        axes = {
            axis: Axis(term.number + 1) if isinstance(term, Axis) else term
            for axis, term in axes.items()
        }
    reduced = tuple(size for size in stage.reduced if size > 1)
    body = replaced(stage.body, axes, {})
    return Stage(shape, reduced, stage.combiner if reduced else "map", body)


def _mergeable(stage: Stage, reads: _Reads) -> int | None:
    """An axis that is only ever read together with the next one, which follows it in memory."""
    sizes = (*stage.shape, *stage.reduced)
    terms = list(walk(stage.body))
    apart = {
        argument.number
        for term in terms
        if isinstance(term, Apply)
        for argument in term.arguments
        if isinstance(argument, Axis)
    }
    if isinstance(stage.body, Axis):
        apart.add(stage.body.number)
    loads = [term for term in terms if isinstance(term, Load)]
    for axis in range(len(sizes) - 1):
        if axis + 1 == len(stage.shape) or {axis, axis + 1} & apart:
            continue
        if all(_together(load, axis, sizes[axis + 1], reads) for load in loads):
            return axis
    return None


def _together(load: Load, axis: int, size: int, reads: _Reads) -> bool:
    first = [at for at, index in enumerate(load.at) if index == Axis(axis)]
    second = [at for at, index in enumerate(load.at) if index == Axis(axis + 1)]
    if not first and not second:
        return True
    shape = reads[load.source].operand.shape
    return len(first) == len(second) == 1 and second[0] == first[0] + 1 and shape[second[0]] == size


def _merged(stage: Stage, axis: int, reads: _Reads) -> Stage:
    sizes = [*stage.shape, *stage.reduced]
    spatial = len(stage.shape) - (axis < len(stage.shape))
    sizes[axis : axis + 2] = [sizes[axis] * sizes[axis + 1]]
    body = rewritten(
        stage.body,
        lambda load, at: _merged_load(load, list(at), axis, reads),
        lambda one: Axis(one.number - 1) if one.number > axis + 1 else one,
    )
    return Stage(tuple(sizes[:spatial]), tuple(sizes[spatial:]), stage.combiner, body)


def _merged_load(load: Load, at: list[Term], axis: int, reads: _Reads) -> Load:
    if Axis(axis) not in load.at:
        return replace(load, at=tuple(at))
    first = load.at.index(Axis(axis))
    read = reads[load.source]
    shape = list(read.operand.shape)
    shape[first : first + 2] = [shape[first] * shape[first + 1]]
    del at[first + 1]
    operand = Operand(tuple(shape), read.operand.dtype)
    return Load(reads.number(Read(read.tensor, operand)), tuple(at), load.type)


def _numbered(stage: Stage, reads: _Reads) -> tuple[Stage, list[Read]]:
    """Numbers the loads by where they first occur."""
    used: list[Read] = []

    def load_of(load: Load, at: tuple[Term, ...]) -> Load:
        read = reads[load.source]
        if read not in used:
            used.append(read)
        return Load(used.index(read), at, load.type)

    return replace(stage, body=rewritten(stage.body, load_of)), used
