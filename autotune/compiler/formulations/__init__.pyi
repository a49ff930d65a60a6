from .registry import (
    Formulation,
    formulation,
    formulations,
    prim_func,
    registered,
)

__all__ = ["Formulation", "formulation", "formulations", "prim_func", "registered"]
