"""Formulations of the training operators, one file an operator and role."""

from autotune.compiler.formulations.registry import (
    Formulation,
    formulation,
    formulations,
    prim_func,
    registered,
)

__all__ = ["Formulation", "formulation", "formulations", "prim_func", "registered"]
