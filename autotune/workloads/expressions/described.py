"""A described kernel: its operands, and stages that each compute one tensor from operands and earlier stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from autotune.errors import UsageError
from autotune.workloads.expressions.ranges import check_indices
from autotune.workloads.expressions.terms import FUNCTIONS, Apply, Axis, Load, Term, Type, walk

ElementType = Literal["float32", "int32"]
Combiner = Literal["map", "sum", "max", "min"]

COMBINERS: tuple[Combiner, ...] = get_args(Combiner)
MOST_AXES = 12
MOST_STAGES = 32
MOST_OPERANDS = 64
MOST_TERMS = 4_000
LARGEST = 2**31 - 1  # elements of a tensor, and steps of a stage's loops
_TYPES: dict[ElementType, Type] = {"float32": "float", "int32": "int"}


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads: a contiguous buffer.

    Attributes:
        shape: Sizes, slowest varying first.
        dtype: Element type.
    """

    shape: tuple[int, ...]
    dtype: ElementType = "float32"


@dataclass(frozen=True)
class Stage:
    """One tensor of a kernel.

    Attributes:
        shape: Its sizes: the loops of the result, axes 0 and following of ``body``.
        reduced: Sizes of the loops that are reduced, the axes after those.
        combiner: ``map`` where nothing is reduced; ``sum``, ``max`` or ``min`` of ``body`` over the reduced loops.
        body: What is computed at each index; a float or an int.
    """

    shape: tuple[int, ...]
    reduced: tuple[int, ...]
    combiner: Combiner
    body: Term

    @property
    def dtype(self) -> ElementType:
        """Element type of the result."""
        return "float32" if self.body.type == "float" else "int32"

    @property
    def steps(self) -> int:
        """How often ``body`` is computed."""
        return math.prod((*self.shape, *self.reduced))


@dataclass(frozen=True)
class Described:
    """A kernel as data.

    Attributes:
        operands: What it reads.
        stages: In order; a stage reads operands and earlier stages.
        outputs: Numbers of the stages that are results, counted from 0; the others are never stored outside.

    Raises:
        UsageError: On construction, when it is too large, a type or a size does not fit, or an index could lie
            outside its tensor.
    """

    operands: tuple[Operand, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Checks everything, since a description may come from a file."""
        _limit("stages", len(self.stages), 1, MOST_STAGES)
        _limit("operands", len(self.operands), 0, MOST_OPERANDS)
        for operand in self.operands:
            _check_sizes(operand.shape)
        for number, stage in enumerate(self.stages):
            self._check_stage(number, stage)
        _limit("results", len(self.outputs), 1, MOST_STAGES)
        if len(set(self.outputs)) < len(self.outputs) or not all(
            0 <= one < len(self.stages) for one in self.outputs
        ):
            raise _error(f"the results are the stages {self.outputs} of {len(self.stages)}")

    def source(self, number: int) -> Operand:
        """What a load with this source reads, an operand or a stage, as an operand."""
        if number < len(self.operands):
            return self.operands[number]
        stage = self.stages[number - len(self.operands)]
        return Operand(stage.shape, stage.dtype)

    @property
    def results(self) -> tuple[Operand, ...]:
        """Shapes and types of the results."""
        return tuple(self.source(len(self.operands) + number) for number in self.outputs)

    @property
    def flops(self) -> int:
        """Floating-point operations; a function such as ``exp`` counts as one."""
        total = 0
        for stage in self.stages:
            each = sum(
                FUNCTIONS[term.function].flops
                for term in walk(stage.body)
                if isinstance(term, Apply) and "float" in [a.type for a in term.arguments]
            )
            total += stage.steps * (each + (stage.combiner != "map"))
        return total

    def streams(self) -> tuple[int, ...]:
        """Operands that each element of every stage reads at its own index alone, if nothing is reduced.

        Such an operand may come straight from the kernel that makes it.
        """
        shape = self.stages[0].shape
        if any(stage.reduced or stage.shape != shape for stage in self.stages):
            return ()
        own = tuple(Axis(at) for at in range(len(shape)))
        loads: dict[int, set[tuple[Term, ...]]] = {}
        for stage in self.stages:
            for term in walk(stage.body):
                if isinstance(term, Load):
                    loads.setdefault(term.source, set()).add(term.at)
        whole = Operand(shape, self.stages[0].dtype)
        return tuple(
            source
            for source in sorted(loads)
            if source < len(self.operands)
            and loads[source] == {own}
            and self.operands[source] == whole
        )

    def _check_stage(self, number: int, stage: Stage) -> None:
        _check_sizes((*stage.shape, *stage.reduced))
        _limit(f"axes of stage {number}", len(stage.shape), 1, MOST_AXES)
        if stage.combiner not in COMBINERS or (stage.combiner == "map") != (not stage.reduced):
            raise _error(f"stage {number} combines by {stage.combiner!r} over {stage.reduced}")
        if stage.body.type == "bool":
            raise _error(f"stage {number} makes truth values")
        extents = (*stage.shape, *stage.reduced)
        terms = list(walk(stage.body))
        _limit("terms of a stage", len(terms), 1, MOST_TERMS)
        for term in terms:
            if isinstance(term, Axis) and term.number >= len(extents):
                raise _error(f"stage {number} has no axis {term.number}")
            if isinstance(term, Load):
                self._check_load(number, term)
        check_indices(stage.body, extents, lambda source: self.source(source).shape)

    def _check_load(self, number: int, load: Load) -> None:
        if not 0 <= load.source < len(self.operands) + number:
            raise _error(f"stage {number} reads {load.source}, which is not computed before")
        source = self.source(load.source)
        if len(load.at) != len(source.shape) or load.type != _TYPES[source.dtype]:
            raise _error(
                f"stage {number} reads a {load.type} at {len(load.at)} indices of "
                f"{source.dtype}{list(source.shape)}"
            )


def _check_sizes(sizes: Sequence[int]) -> None:
    if len(sizes) > MOST_AXES or min(sizes, default=1) < 1 or math.prod(sizes) > LARGEST:
        raise _error(
            f"sizes {tuple(sizes)} are not at most {MOST_AXES} numbers from 1 with a product of {LARGEST} at most"
        )


def _limit(what: str, found: int, least: int, most: int) -> None:
    if not least <= found <= most:
        raise _error(f"{found} {what}, not {least} to {most}")


def _error(message: str) -> UsageError:
    return UsageError(f"described kernel: {message}", hint="see docs/reference/expressions.md")
