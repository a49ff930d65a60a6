from .chosen_device import choose
from .comparison import ComparisonRequest, compare_points
from .export import ExportRequest, export
from .interrupted import RunInterrupted
from .kernels import StepOutcome, Tuned, measure_step, resumed_request, tune
from .kernels_request import KernelsRequest, ResolvedRequest
from .left_behind import restore_left_behind, still_there
from .options import limits, one_of
from .planned_step import measured_plan
from .profile import ProfileRequest, profile
from .provenance import command_line_of
from .search import Search
from .search_points import point_of
from .search_request import SearchRequest
from .settings import boards
from .step_request import DEFAULT_BATCH, StepRequest, requested_step
from .training import TrainingRequest, train
from .trust import allow, model_code, outside

__all__ = [
    "allow",
    "boards",
    "choose",
    "command_line_of",
    "compare_points",
    "ComparisonRequest",
    "DEFAULT_BATCH",
    "export",
    "ExportRequest",
    "KernelsRequest",
    "limits",
    "measure_step",
    "measured_plan",
    "model_code",
    "one_of",
    "outside",
    "point_of",
    "profile",
    "ProfileRequest",
    "requested_step",
    "ResolvedRequest",
    "restore_left_behind",
    "resumed_request",
    "RunInterrupted",
    "Search",
    "SearchRequest",
    "StepOutcome",
    "StepRequest",
    "still_there",
    "train",
    "TrainingRequest",
    "tune",
    "Tuned",
]
