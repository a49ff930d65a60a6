from .comparison import max_relative_error
from .evaluation import reference
from .own import OwnProgram, program_of, register_program
from .random_inputs import dropout_mask, random_inputs

__all__ = [
    "dropout_mask",
    "max_relative_error",
    "OwnProgram",
    "program_of",
    "random_inputs",
    "reference",
    "register_program",
]
