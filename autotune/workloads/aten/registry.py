"""The ATen operators that can be lowered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType

from autotune.workloads.aten.lowering import Lower

_OPERATORS: dict[str, Lower] = {}
_MODULES = (
    "pointwise", "quotients", "shapes", "reductions", "contractions", "attention", "windows", "indexing", "norms",
)  # fmt: skip


def lowers(*operators: str) -> Callable[[Lower], Lower]:
    """Registers a function for ATen operators, such as ``relu.default``."""

    def register(lower: Lower) -> Lower:
        for operator in operators:
            _OPERATORS[f"aten.{operator}"] = lower
        return lower

    return register


def aten_operators() -> Mapping[str, Lower]:
    """Every ATen operator that can be lowered, by its name with its overload."""
    for module in _MODULES:
        import_module(f"autotune.workloads.aten.{module}")
    return MappingProxyType(dict(sorted(_OPERATORS.items())))
