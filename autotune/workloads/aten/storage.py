"""Values become tensors: kernels are run, and their results get names and orders in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autotune.workloads.aten.compact import Read, compact
from autotune.workloads.aten.program import Dtype, Program
from autotune.workloads.aten.values import (
    Indices,
    Lazy,
    Shape,
    Strided,
    Value,
    contiguous,
    is_stored,
    radices,
)
from autotune.workloads.autodiff import StepRecorder
from autotune.workloads.expressions import (
    Axis,
    Combiner,
    Described,
    Load,
    Operand,
    Stage,
    Term,
    Type,
    apply,
    integer,
    walk,
)
from autotune.workloads.graph import Initial, Kind
from autotune.workloads.operators import Expression, Operator, Role


class Storage:
    """The tensors and kernels of a step while it is lowered.

    Args:
        name: The model's name.
        batch: Samples in a step.
        program: The traced step.
        channels_last: Whether images and filters are stored with their channels last.
    """

    def __init__(self, name: str, batch: int, program: Program, *, channels_last: bool) -> None:
        self.channels_last = channels_last
        self._step = StepRecorder(name, batch)
        self._reads: list[Read] = []
        self._numbers: dict[Read, int] = {}
        self._names: Counter[str] = Counter()
        self._backward = False
        self._place = ""
        self._images = {
            one.shape[:2]
            for one in program.operations
            if one.operator == "aten.convolution.default"
        }
        self.variances: dict[str, str] = {}
        """Tensor with a batch's means -> the one with its variances."""

    def stored(self, value: Value, order: Sequence[int] | None = None) -> Strided:
        """The value as a whole tensor of its own, stored in an order of its axes."""
        there = value.stored if isinstance(value, Lazy) else value
        if there is not None and is_stored(there, order):
            return there
        return self._store(value, tuple(range(len(value.shape)) if order is None else order))

    def somehow_stored(self, value: Value) -> Strided:
        """The value in memory, in the order that suits what it is computed from."""
        there = value.stored if isinstance(value, Lazy) else value
        if there is not None:
            return there
        return self._store(value, self.natural_order(value))

    def images(self, value: Value) -> Strided:
        """An image as contractions take it: [n, c, ...] in the step's layout."""
        return self.stored(value, self.image_order(len(value.shape)))

    def image_order(self, rank: int = 4) -> tuple[int, ...]:
        """Returns the order in which the axes of images [n, c, ...] are stored, slowest first."""
        axes = range(rank)
        return (0, *axes[2:], 1) if self.channels_last else tuple(axes)

    def filters(self, value: Value) -> Strided:
        """Filters [k, c, r, s] as contractions take them: [r, s, c, k] with channels last."""
        return self.stored(value, filter_order(len(value.shape)) if self.channels_last else None)

    def reduce(
        self, combiner: Combiner, value: Value, axes: Sequence[int], *, keep: bool = False
    ) -> Strided:
        """Combines a value over some of its axes.

        Returns:
            The result without those axes, or with size 1 there if ``keep``.
        """
        kept = [axis for axis in range(len(value.shape)) if axis not in axes]
        order = [axis for axis in self.natural_order(value) if axis in axes]
        place = {axis: at for at, axis in enumerate([*kept, *order])}
        indices = tuple(Axis(place[axis]) for axis in range(len(value.shape)))
        body = self.element(value, indices)
        shape = tuple(value.shape[axis] for axis in kept)
        result = self.window(
            combiner, shape, tuple(value.shape[axis] for axis in order), body, value.dtype
        )
        if keep:
            whole = tuple(1 if axis in axes else n for axis, n in enumerate(value.shape))
            strides = contiguous(whole)
            return replace(result, shape=whole, strides=strides)
        return result

    def window(
        self, combiner: Combiner, shape: Shape, reduced: Shape, body: Term, dtype: Dtype
    ) -> Strided:
        """Stores a reduction: at each index of ``shape`` a combination of ``body`` over ``reduced``."""
        combined = combiner if reduced else "map"
        tensor = self._emit(shape, reduced, combined, as_stored(body))
        return Strided(tensor, math.prod(shape), shape, contiguous(shape), 0, dtype)

    def element(self, value: Value, indices: Indices) -> Term:
        """The term of an element of a value."""
        if isinstance(value, Lazy):
            return value.at(indices)
        found = radices(value)
        if found is not None:
            shape, along, begin = found
            at = tuple(
                integer(first) if axis is None else apply("add", indices[axis], integer(first))
                for axis, first in zip(along, begin, strict=True)
            )
        else:
            shape = (value.elements,)
            flat: Term = integer(value.offset)
            for index, stride, size in zip(indices, value.strides, value.shape, strict=True):
                if size > 1 and stride:
                    flat = apply("add", flat, apply("mul", index, integer(stride)))
            at = (flat,)
        stored: Type = "float" if value.dtype == "float32" else "int"
        operand = Operand(shape, "float32" if stored == "float" else "int32")
        load = Load(self._number(Read(value.tensor, operand)), at, stored)
        return apply("ne", load, integer(0)) if value.dtype == "bool" else load

    def call(
        self, operator: Operator, role: Role, operands: Sequence[Strided], *shapes: Shape
    ) -> tuple[str, ...]:
        """Runs a kernel on whole tensors; returns the names of its results, float32 of these shapes."""
        outputs = tuple(self._define(shape, "float32") for shape in shapes)
        names = tuple(operand.tensor for operand in operands)
        self._step.run(self._place, operator, role, names, outputs)
        return outputs

    def define_int(self, shape: Shape) -> str:
        """Adds a tensor of ints, and returns its name."""
        return self._define(shape, "int32")

    def run_kernel(
        self, operator: Operator, role: Role, inputs: Sequence[str], outputs: Sequence[str]
    ) -> None:
        """Runs a kernel on tensors that have been defined."""
        self._step.run(self._place, operator, role, tuple(inputs), tuple(outputs))

    def define(self, shape: Shape) -> str:
        """Adds a tensor of floats, and returns its name."""
        return self._define(shape, "float32")

    def drawn(self, shape: Shape, initial: Initial) -> Strided:
        """Random numbers: an input that is drawn afresh for each step."""
        name = self._free(f"{self._place}.random")
        self._step.define(name, shape, "input", initial=initial)
        order: tuple[int, ...] | None = None
        if self.channels_last and len(shape) > 2 and shape[:2] in self._images:
            order = self.image_order(len(shape))
            self._step.store(name, order)
        return Strided(name, math.prod(shape), shape, contiguous(shape, order), 0, "float32")

    def natural_order(self, value: Value) -> tuple[int, ...]:
        """Axes of a value in the order of the tensor that most of it is read from."""
        rank = len(value.shape)
        if isinstance(value, Strided):
            return tuple(sorted(range(rank), key=lambda a: (-value.strides[a], a)))
        best: tuple[int, list[int]] = (0, [])
        for term in walk(self.element(value, axes_of_rank(rank))):
            if isinstance(term, Load):
                found = []
                for index in term.at:
                    inner = [one.number for one in walk(index) if isinstance(one, Axis)]
                    found += [axis for axis in inner if axis not in found]
                size = math.prod(value.shape[axis] for axis in found)
                best = max(best, (size, found), key=lambda pair: pair[0])
        first = best[1]
        missing = [axis for axis in range(rank) if axis not in first]
        if any(value.shape[axis] > 1 for axis in missing):
            return tuple(range(rank))
        return (*missing, *first)

    def _store(self, value: Value, order: tuple[int, ...]) -> Strided:
        shape = tuple(value.shape[axis] for axis in order)
        where = {axis: at for at, axis in enumerate(order)}
        body = self.element(value, tuple(Axis(where[axis]) for axis in range(len(order))))
        place = self._place
        self._place = (value.place if isinstance(value, Lazy) else "") or place
        tensor = self._emit(shape, (), "map", as_stored(body))
        self._place = place
        strides = contiguous(value.shape, order)
        result = Strided(tensor, math.prod(shape), value.shape, strides, 0, value.dtype)
        if isinstance(value, Lazy):
            self._remember(value, result)
        return result

    def _remember(self, value: Lazy, result: Strided) -> None:
        """Reads a value, and what it is a view of, from memory from now on."""
        if value.stored is not None:
            return
        value.stored, value.at = result, lambda indices: self.element(result, indices)
        if value.base is not None and value.back is not None:
            base = value.back(result)
            if isinstance(base, Strided):
                self._remember(value.base, base)

    def _emit(self, shape: Shape, reduced: Shape, combiner: Combiner, body: Term) -> str:
        """Runs a described kernel; returns the name of its result."""
        stage, reads = compact(Stage(shape, reduced, combiner, body), self._reads)
        output = self._define(shape, "float32" if body.type == "float" else "int32")
        kernel = Described(tuple(read.operand for read in reads), (stage,), (0,))
        self._step.run(
            self._place, Expression.of(kernel), "forward", tuple(r.tensor for r in reads), (output,)
        )
        return output

    def _number(self, read: Read) -> int:
        if read not in self._numbers:
            self._numbers[read] = len(self._reads)
            self._reads.append(read)
        return self._numbers[read]

    def _define(self, shape: Shape, dtype: Any) -> str:
        name = self._free(self._place)
        kind: Kind = "gradient" if self._backward else "activation"
        return self._step.define(name, shape or (1,), kind, dtype)

    def _free(self, name: str) -> str:
        while True:
            self._names[name] += 1
            number = self._names[name]
            found = name if number == 1 else f"{name}.{number}"
            if number == 1 or found not in self._names:
                self._names[found] += found != name
                return found


def filter_order(rank: int) -> tuple[int, ...]:
    """The order in which filters [k, c, ...] are stored with channels last: [..., c, k]."""
    return (*range(2, rank), 1, 0)


def axes_of_rank(rank: int) -> tuple[Axis, ...]:
    return tuple(Axis(at) for at in range(rank))


def as_stored(body: Term) -> Term:
    """Returns what is stored of a term: truth values are stored as 0 and 1."""
    return apply("int", body) if body.type == "bool" else body
