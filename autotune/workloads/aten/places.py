"""Which layer an operation belongs to; the backward pass has that of what it differentiates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune.workloads.aten.program import Operation, Program, Ref


class LayerPlaces:
    """Names of layers by operation.

    Args:
        program: The traced step.
    """

    def __init__(self, program: Program) -> None:
        parameters = {
            source.name: source.path.rpartition(".")[0]
            for source in program.sources
            if source.kind in ("trained", "frozen", "buffer")
        }
        modules = {one.name: one.module for one in program.operations if one.module}
        self._found = dict(modules)
        reader = {ref.name: path.rpartition(".")[0] for path, ref in program.gradients.items()}
        for operation in reversed(program.operations):
            names = list(_refs(tuple(operation.arguments.values())))
            place = (
                operation.module
                or next((parameters[name] for name in names if name in parameters), "")
                or reader.get(operation.name, "")
                or next((modules[name] for name in names if name in modules), "")
            )
            if place:
                self._found[operation.name] = place
                reader |= dict.fromkeys(names, place)

    def place(self, operation: Operation) -> str:
        """Returns the place of an operation.

        It is the module that the operation runs in. Where that is not known, as in the backward pass, it is the
        module of a parameter that the operation takes, or the place of what takes its result, or the module of
        another operand; else the operator's own name.
        """
        return self._found.get(operation.name) or operation.operator.split(".")[1]


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, tuple):
        for item in value:
            yield from _refs(item)
