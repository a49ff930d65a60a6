"""Makes one kernel of those that differ only in which part of a tensor they read, as in a recurrent net.

A step over time reads its own rows of a tensor that holds all times. If the kernel names its first row, each time
step has a kernel of its own. If the first row is an operand, all time steps call one kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from autotune.workloads.expressions import (
    MOST_OPERANDS,
    Apply,
    Constant,
    Described,
    Load,
    Operand,
    Stage,
    Term,
    apply,
    integer,
    rewritten,
    walk,
)
from autotune.workloads.graph import Initial, Node, StepGraph, Tensor
from autotune.workloads.operators import Expression, Kernel

_FEWEST = 4
"""Fewest kernels that are worth an operand: with fewer, those with constants are faster."""
_Starts = Sequence[int]
"""The constants of a kernel's indices, in the order in which the loads are walked through."""


def with_common_kernels(graph: StepGraph) -> StepGraph:
    """Replaces described kernels that differ only in constants of their indices by one that has those as operands.

    Args:
        graph: A step without epilogues.

    Returns:
        A step that computes the same.
    """
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for at, node in enumerate(graph.nodes):
        if isinstance(node.kernel.operator, Expression):
            groups[_form(_described(node)), node.kernel.role].append(at)
    nodes = list(graph.nodes)
    tensors: dict[int, Tensor] = {}
    for members in groups.values():
        kernels = [_described(graph.nodes[at]) for at in members]
        columns = list(zip(*map(_starts, kernels), strict=True))
        varying = list(dict.fromkeys(one for one in columns if len(set(one)) > 1))
        operands = len(kernels[0].operands) + len(varying)
        if len(set(kernels)) < _FEWEST or operands > MOST_OPERANDS:
            continue
        operator = Expression.of(_common(kernels[0], columns, varying))
        for number, at in enumerate(members):
            node, given = graph.nodes[at], [column[number] for column in varying]
            for start in given:
                tensors.setdefault(start, _tensor(start))
            inputs = (*node.inputs, *(tensors[start].name for start in given))
            nodes[at] = replace(node, kernel=Kernel(operator, node.kernel.role), inputs=inputs)
    return replace(graph, tensors=(*graph.tensors, *tensors.values()), nodes=tuple(nodes))


def _described(node: Node) -> Described:
    assert isinstance(node.kernel.operator, Expression)
    return node.kernel.operator.kernel


def _tensor(start: int) -> Tensor:
    return Tensor(f"start.{start}", (1,), "int32", "constant", Initial("constant", start))


def _starts(kernel: Described) -> _Starts:
    return [
        _parts(index)[1]
        for stage in kernel.stages
        for term in walk(stage.body)
        if isinstance(term, Load)
        for index in term.at
    ]


def _form(kernel: Described) -> Any:
    """Returns what kernels have in common that differ only in those constants: each has its number instead."""
    numbers = count()
    stages = _with_starts(kernel, lambda: integer(next(numbers)))
    return kernel.operands, stages, kernel.outputs


def _common(kernel: Described, columns: Sequence[_Starts], varying: Sequence[_Starts]) -> Described:
    """Returns the kernel with operands for the constants that vary, which are brought into their range."""
    first, columns_left = len(kernel.operands), iter(columns)

    def start() -> Term:
        column = next(columns_left)
        if column not in varying:
            return integer(column[0])
        given = Load(first + varying.index(column), (integer(0),), "int")
        return apply("min", apply("max", given, integer(min(column))), integer(max(column)))

    stages = _with_starts(kernel, start, after=first, more=len(varying))
    return Described(
        (*kernel.operands, *(Operand((1,), "int32") for _ in varying)), stages, kernel.outputs
    )


def _with_starts(
    kernel: Described, start: Callable[[], Term], *, after: int = 0, more: int = 0
) -> tuple[Stage, ...]:
    """Returns the stages with other constants of indices, and larger numbers for the sources from one on."""

    def load_of(load: Load, at: tuple[Term, ...]) -> Load:
        index = []
        for one in at:
            part, _ = _parts(one)
            index.append(start() if part is None else apply("add", part, start()))
        source = load.source + (more if load.source >= after else 0)
        return Load(source, tuple(index), load.type)

    return tuple(replace(one, body=rewritten(one.body, load_of)) for one in kernel.stages)


def _parts(index: Term) -> tuple[Term | None, int]:
    """Returns an index as a term without a constant, None if there is no other, and a constant that is added."""
    match index:
        case Constant(value=value):
            return None, int(value)
        case Apply(function="add", arguments=(part, Constant(value=value))):
            return part, int(value)
        case _:
            return index, 0
