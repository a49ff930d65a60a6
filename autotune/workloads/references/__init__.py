"""Ground truth of every kernel in float64, the inputs to check it with, and the comparison."""

from autotune.workloads.references.comparison import max_relative_error
from autotune.workloads.references.evaluation import reference
from autotune.workloads.references.random_inputs import dropout_mask, random_inputs

__all__ = ["dropout_mask", "max_relative_error", "random_inputs", "reference"]
