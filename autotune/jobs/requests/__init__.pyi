from .kernels import KernelsRequest, ResolvedRequest, positive
from .points import point_of
from .search import BLOCKS, SearchRequest
from .step import (
    DEFAULT_BATCH,
    GIVE,
    PUT_BACK,
    StepRequest,
    requested_step,
    step_feeds,
)
from .trusted import allow, check_allowed, model_code, outside

__all__ = [
    "allow",
    "BLOCKS",
    "check_allowed",
    "DEFAULT_BATCH",
    "GIVE",
    "KernelsRequest",
    "model_code",
    "outside",
    "point_of",
    "positive",
    "PUT_BACK",
    "requested_step",
    "ResolvedRequest",
    "SearchRequest",
    "step_feeds",
    "StepRequest",
]
