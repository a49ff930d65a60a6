from .comparison import max_relative_error
from .evaluation import reference
from .random_inputs import dropout_mask, random_inputs

__all__ = ["dropout_mask", "max_relative_error", "random_inputs", "reference"]
