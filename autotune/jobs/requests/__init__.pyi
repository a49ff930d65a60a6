from .defaults import (
    BLOCKS,
    DEFAULT_BATCH,
    JOINT_TRIALS,
    KERNEL_TRIALS,
    LARGEST,
    SEARCH_TRIALS,
    SEED,
)
from .from_python import checked_callbacks, checked_fields, checked_shape, known_options
from .kernels import KernelsRequest, ResolvedRequest, load_own, positive
from .points import point_of
from .python_options import ExportOptions, KernelsOptions, SearchOptions, StepOptions
from .search import SearchRequest
from .step import (
    GIVE,
    PUT_BACK,
    StepRequest,
    requested_step,
)
from .trusted import allow, check_allowed, is_allowed, model_code, outside, outside_of_run

__all__ = [
    "allow",
    "BLOCKS",
    "check_allowed",
    "checked_callbacks",
    "checked_fields",
    "checked_shape",
    "DEFAULT_BATCH",
    "ExportOptions",
    "GIVE",
    "is_allowed",
    "JOINT_TRIALS",
    "KERNEL_TRIALS",
    "KernelsOptions",
    "KernelsRequest",
    "LARGEST",
    "known_options",
    "load_own",
    "model_code",
    "outside",
    "outside_of_run",
    "point_of",
    "positive",
    "PUT_BACK",
    "requested_step",
    "ResolvedRequest",
    "SEARCH_TRIALS",
    "SearchOptions",
    "SearchRequest",
    "SEED",
    "StepOptions",
    "StepRequest",
]
