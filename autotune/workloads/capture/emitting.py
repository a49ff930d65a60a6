"""Reads and adds calls of ATen operators in a traced graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.workloads.capture.factory import import_torch

Emit = Callable[..., Any]
"""Takes an operator's name, such as ``add.Tensor``, and its arguments; returns the new node."""


def arguments_of(node: Any) -> dict[str, Any]:
    """Returns a call's arguments by their names in the operator's schema, with defaults; empty without a schema."""
    schema = getattr(node.target, "_schema", None)
    arguments: dict[str, Any] = {}
    for position, declared in enumerate(schema.arguments if schema else ()):
        if position < len(node.args):
            value = node.args[position]
        elif declared.name in node.kwargs:
            value = node.kwargs[declared.name]
        else:
            value = declared.default_value if declared.has_default_value() else None
        arguments[declared.name] = value
    return arguments


def emitter(node: Any) -> Emit:
    """Returns a function that adds calls before a node. They count as part of the node's module."""
    graph, aten = node.graph, import_torch().ops.aten

    def emit(name: str, *arguments: Any) -> Any:
        packet, _, overload = name.partition(".")
        target = getattr(getattr(aten, packet), overload)
        with graph.inserting_before(node):
            call = graph.call_function(target, arguments)
        call.meta = {key: value for key, value in node.meta.items() if key != "val"}
        call.meta["val"] = target(*[_fake(one) for one in arguments])
        return call

    return emit


def _fake(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_fake(one) for one in argument]
    return argument.meta["val"] if hasattr(argument, "meta") else argument
