"""How many values an input or label may take that indexes something, also as a float that becomes an integer."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.workloads.aten.program import Operation, Program, Ref

_SAME_VALUES = {
    "_to_copy", "alias", "clone", "detach", "expand", "permute", "select", "slice", "squeeze", "transpose",
    "unsqueeze", "view", "where",
}  # fmt: skip
"""Operators whose result holds values of an operand, or a number instead of some (``where``)."""


def index_ranges(program: Program) -> dict[str, int]:
    """Returns the size of the smallest axis that each source indexes, by the source's path.

    Sources that index nothing are left out, and those that integers are computed from: which of them may index is
    not known.
    """
    shapes = {Ref(source.name): source.shape for source in program.sources}
    origin = {
        Ref(source.name): source.path
        for source in program.sources
        if source.kind in ("input", "label")
    }
    found: dict[str, int] = {}
    computed: set[str] = set()
    for operation in program.operations:
        shapes |= {Ref(operation.name, at): one for at, one in enumerate(operation.shapes)}
        for index, size in _indexed(operation, shapes):
            if path := origin.get(index):
                found[path] = min(size, found.get(path, size))
        if operation.operator.split(".")[1] in _SAME_VALUES:
            held = {origin[one] for one in _tensors(operation) if one in origin}
            if len(held) == 1:
                origin[Ref(operation.name)] = held.pop()
        elif operation.dtypes[0] == "int32":
            refs = [one for one in operation.arguments.values() if isinstance(one, Ref)]
            computed |= {origin[one] for one in refs if one in origin}
    return {path: size for path, size in found.items() if path not in computed}


def _tensors(operation: Operation) -> list[Ref]:
    arguments = operation.arguments
    names = ("self", "other") if "where" in operation.operator else ("self",)
    return [arguments[name] for name in names if isinstance(arguments.get(name), Ref)]


def _indexed(operation: Operation, shapes: Mapping[Ref, tuple[int, ...]]) -> list[tuple[Ref, int]]:
    """Index tensors of an operation, each with the size of the axis that it indexes."""
    arguments = operation.arguments
    match operation.operator.split(".")[1]:
        case "embedding":
            return [(arguments["indices"], shapes[arguments["weight"]][0])]
        case "gather" | "index_select" | "scatter" | "scatter_add":
            sizes = shapes[arguments["self"]]
            return [(arguments["index"], sizes[arguments["dim"]])] if sizes else []
        case "index" | "_unsafe_index":
            pairs = zip(arguments["indices"], shapes[arguments["self"]], strict=False)
            return [(index, size) for index, size in pairs if index is not None]
    return []
