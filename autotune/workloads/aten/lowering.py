"""Lowers a traced step: contractions become kernels of their own, everything else described kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.workloads.aten.alike import with_common_kernels
from autotune.workloads.aten.compact import Read, compact
from autotune.workloads.aten.places import LayerPlaces
from autotune.workloads.aten.program import Operation, Program, Ref, Source
from autotune.workloads.aten.storage import Storage, as_stored, axes_of_rank, filter_order
from autotune.workloads.aten.values import Lazy, Strided, Value, contiguous
from autotune.workloads.expressions import (
    Apply,
    Described,
    ElementType,
    Load,
    Operand,
    Stage,
    replaced,
    walk,
)
from autotune.workloads.graph import SOURCE_KINDS, Initial, Kind, StepGraph
from autotune.workloads.operators import Expression
from autotune.workloads.optimizer import Optimizer
from autotune.workloads.updates import write_updates

Lower = Callable[["Lowering", Operation], Value | tuple[Value | None, ...]]
"""Lowers an operation to its result, or to its several results; None for one that cannot be used."""

_COSTLY = frozenset(
    ["exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "log1p", "expm1", "pow", "sqrt"]
)
_MOST_LOADS = 2
"""Of a value that each of its readers computes again."""
_MOST_READS, _MOST_TERMS = 24, 96
"""Of a value that its only reader computes."""


class Lowering(Storage):
    """A step while it is lowered.

    Args:
        name: The model's name.
        batch: Samples in a step.
        program: The traced step.
        classes: How many values an input or label takes, by its name; of a float one only if it indexes something.
        channels_last: Whether images and filters are stored with their channels last.
    """

    def __init__(
        self,
        name: str,
        batch: int,
        program: Program,
        classes: Mapping[str, int],
        *,
        channels_last: bool,
    ) -> None:
        super().__init__(name, batch, program, channels_last=channels_last)
        self._name = name
        self._program = program
        self._classes = classes
        self._values: dict[Ref, Value] = {}
        self._places = LayerPlaces(program)

    def run(self, operators: Mapping[str, Lower], optimizer: Optimizer) -> StepGraph:
        """Lowers everything.

        Args:
            operators: How each ATen operator is lowered.
            optimizer: What updates the parameters.

        Returns:
            The valid step.

        Raises:
            UsageError: An operator is not known, or is used in a way that is not supported.
        """
        filters = _filters(self._program) if self.channels_last else {}
        for source in self._program.sources:
            self._values[Ref(source.name)] = self._source(source, filters.get(source.name))
        for operation in self._program.operations:
            lower = operators.get(operation.operator)
            if lower is None:
                raise self.refused(
                    operation,
                    "is not supported",
                    "`autotune models --operators` lists what is",
                )
            self._place = self._places.place(operation)
            found = lower(self, operation)
            results = found if isinstance(found, tuple) else (found,)
            for number, value in enumerate(results):
                if value is not None:
                    self._values[Ref(operation.name, number)] = self._kept(operation, value)
            if operation.name == self._program.loss.name:
                self._backward = True
        return self._finished(optimizer)

    def value(self, argument: Any) -> Value:
        """The value of an argument that is a tensor; as it is in memory, where it has been stored."""
        value = self._values[argument]
        return value.stored or value if isinstance(value, Lazy) else value

    def refused(self, operation: Operation, what: str, hint: str) -> UsageError:
        """The error that names an operator, its place and the line that it comes from."""
        where = operation.module or "the step"
        found = f"{operation.operator} in {where}"
        if operation.written:
            found = f"{operation.written} ({found})"
        return UsageError(f"{self._name}: {found} {what}", hint=hint)

    def _source(self, source: Source, order: tuple[int, ...] | None) -> Strided:
        kinds: dict[str, Kind] = {
            "input": "input", "label": "label", "trained": "parameter", "frozen": "constant",
            "buffer": "state" if source.path in self._program.buffers else "constant",
        }  # fmt: skip
        if (
            order is None
            and source.kind == "input"
            and len(source.shape) == 4
            and self.channels_last
        ):
            order = self.image_order()
        dtype: ElementType = "float32" if source.dtype == "float32" else "int32"
        fan_in = math.prod(source.shape[1:]) or 1
        initial = Initial("uniform", 1.0 / math.sqrt(fan_in))
        if source.kind in ("input", "label"):
            count = self._classes.get(source.path, None if dtype == "float32" else 2)
            initial = Initial("normal", 1.0) if count is None else Initial("classes", count)
        self._step.define(source.path, source.shape, kinds[source.kind], dtype, initial)
        if order is not None:
            self._step.store(source.path, order)
        self._names[source.path] += 1
        strides = contiguous(source.shape, order)
        return Strided(source.path, math.prod(source.shape), source.shape, strides, 0, source.dtype)

    def _kept(self, operation: Operation, value: Value) -> Value:
        """Stores a value that several readers would compute again at a cost, or that has grown too large."""
        if isinstance(value, Strided):
            return value
        value.place = value.place or self._place
        terms = list(walk(self.element(value, axes_of_rank(len(value.shape)))))
        loads = sum(isinstance(term, Load) for term in terms)
        costly = any(isinstance(term, Apply) and term.function in _COSTLY for term in terms)
        again = operation.readers > 1 and (loads > _MOST_LOADS or (costly and loads > 0))
        if again or loads > _MOST_READS or len(terms) > _MOST_TERMS:
            self.somehow_stored(value)
        return value

    def _finished(self, optimizer: Optimizer) -> StepGraph:
        self._place = "loss"
        loss = self.stored(self._values[self._program.loss])
        self._backward = True
        gradients = []
        for path, ref in self._program.gradients.items():
            tensor = self._step.tensor(path)
            self._place = path.rpartition(".")[0] or path
            order = tensor.layout.order if tensor.layout else None
            gradients.append((tensor, self.stored(self._values[ref], order).tensor))
        for path, ref in self._program.buffers.items():
            self._place = path.rpartition(".")[0] or path
            self._update_buffer(path, self._values[ref])
        write_updates(self._step, optimizer, gradients)
        return with_common_kernels(_of_what_is_read(self._step.graph(loss.tensor)))

    def _update_buffer(self, path: str, value: Value) -> None:
        """Writes a buffer's new value; its old one is the first operand, whose place the result takes."""
        shape = self._step.tensor(path).shape
        body = as_stored(self.element(value, axes_of_rank(len(shape))))
        stage, reads = compact(Stage(shape, (), "map", body), self._reads)
        before = Read(path, Operand(stage.shape))
        order = [before, *(read for read in reads if read != before)]
        stage = replace(
            stage, body=replaced(stage.body, {}, {at: order.index(r) for at, r in enumerate(reads)})
        )
        kernel = Described(tuple(read.operand for read in order), (stage,), (0,))
        updated = self._step.define(f"{path}.updated", shape, "updated")
        self._step.run(
            self._place, Expression.of(kernel), "update", tuple(r.tensor for r in order), (updated,)
        )


def _of_what_is_read(graph: StepGraph) -> StepGraph:
    """The step without the sources that no kernel reads."""
    read = {name for node in graph.nodes for name in node.inputs}
    kept = tuple(t for t in graph.tensors if t.kind not in SOURCE_KINDS or t.name in read)
    return replace(graph, tensors=kept)


def _filters(program: Program) -> dict[str, tuple[int, ...]]:
    """Sources that convolutions take as their filters, with the order in which they are stored."""
    found = {}
    shapes = {source.name: source.shape for source in program.sources}
    for operation in program.operations:
        if operation.operator.startswith("aten.convolution."):
            weight = operation.arguments["weight"]
            if weight.name in shapes:
                found[weight.name] = filter_order(len(shapes[weight.name]))
    return found
