"""Proposals: designed probes and models, and the searches that they are compared with, as Optuna samplers."""

from autotune.studies.search.evolution import Evolution
from autotune.studies.search.model_search import GridSearch, Known, ModelSearch
from autotune.studies.search.sampler import (
    FIGURES,
    NUMBER,
    SearchSampler,
    parameters,
    suggest,
    taken_numbers,
)
from autotune.studies.search.tree_parzen import TreeParzen

__all__ = [
    "Evolution",
    "FIGURES",
    "GridSearch",
    "Known",
    "ModelSearch",
    "NUMBER",
    "parameters",
    "SearchSampler",
    "suggest",
    "taken_numbers",
    "TreeParzen",
]
