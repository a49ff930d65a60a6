from .marks import (
    ALL_COLUMNS,
    APART,
    FEW_CHANNELS,
    JOINED,
    PRODUCT,
    REGISTER_PRODUCT,
    ROWS,
    TRANSFORM,
    TRANSFORMED,
    VECTOR_ROWS,
    WINDOW,
)
from .registry import Formulation, formulation, formulations, prim_func, registered

__all__ = [
    "ALL_COLUMNS",
    "APART",
    "FEW_CHANNELS",
    "Formulation",
    "formulation",
    "formulations",
    "JOINED",
    "prim_func",
    "PRODUCT",
    "REGISTER_PRODUCT",
    "registered",
    "ROWS",
    "TRANSFORM",
    "TRANSFORMED",
    "VECTOR_ROWS",
    "WINDOW",
]
