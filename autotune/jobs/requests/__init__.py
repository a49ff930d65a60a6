"""Requests: frozen dataclasses, made once from options or from a run's file, and validated here."""

from autotune.jobs.requests.kernels import KernelsRequest, ResolvedRequest, positive
from autotune.jobs.requests.points import point_of
from autotune.jobs.requests.search import BLOCKS, SearchRequest
from autotune.jobs.requests.step import (
    DEFAULT_BATCH,
    GIVE,
    PUT_BACK,
    StepRequest,
    requested_step,
    step_feeds,
)
from autotune.jobs.requests.trusted import allow, check_allowed, model_code, outside

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
