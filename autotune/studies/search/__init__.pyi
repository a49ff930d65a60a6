from .evolution import Evolution
from .model_search import GridSearch, Known, ModelSearch
from .sampler import (
    FIGURES,
    NUMBER,
    SearchSampler,
    parameter_names,
    parameters,
    suggest,
    taken_numbers,
)
from .tree_parzen import TreeParzen

__all__ = [
    "Evolution",
    "FIGURES",
    "GridSearch",
    "Known",
    "ModelSearch",
    "NUMBER",
    "parameter_names",
    "parameters",
    "SearchSampler",
    "suggest",
    "taken_numbers",
    "TreeParzen",
]
