"""Classifies a traced operation by its name and arguments: a view, a copy, an activation."""

from __future__ import annotations

from autotune.workloads.capture.program import Operation, Reference

_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "flatten.using_ints", "view.default", "reshape.default", "squeeze.default", "squeeze.dim",
        "squeeze.dims", "unsqueeze.default",
    )
)  # fmt: skip


_CONVERSIONS = ("to", "type_as", "contiguous", "alias", "lift_fresh", "_to_copy")


def is_copy(operation: Operation) -> bool:
    """Returns whether an operation copies its first argument: a clone, a product with 1, a sum with 0."""
    family, _, _ = operation.operator.removeprefix("aten.").partition(".")
    if family == "clone" or (family in _CONVERSIONS and operation.arguments.get("copy") is True):
        return True
    other = operation.arguments.get("other")
    if isinstance(other, Reference) or operation.arguments.get("rounding_mode") is not None:
        return False
    return (family in ("add", "sub") and other == 0) or (family in ("mul", "div") and other == 1)


def is_view(operation: Operation) -> bool:
    """Returns whether an operation only views its argument in another shape. Dropout that drops nothing does.

    So do conversions of float32 to float32, and to the same device, which PyTorch ignores.
    """
    family, _, _ = operation.operator.removeprefix("aten.").partition(".")
    if family in _CONVERSIONS:
        return operation.arguments.get("copy") is not True
    if operation.operator in ("aten.dropout.default", "aten.dropout_.default"):
        return not operation.arguments["train"] or operation.arguments["p"] == 0
    return operation.operator in _VIEWS


def activation(operation: Operation) -> str:
    """Returns ``relu``, ``relu6`` or, for any other operation, an empty text."""
    family = operation.operator.split(".")[1] if "." in operation.operator else ""
    if family in ("hardtanh", "hardtanh_"):
        limits = operation.arguments["min_val"], operation.arguments["max_val"]
        return "relu6" if limits == (0, 6) else ""
    return {"relu": "relu", "relu_": "relu", "relu6": "relu6", "relu6_": "relu6"}.get(family, "")
