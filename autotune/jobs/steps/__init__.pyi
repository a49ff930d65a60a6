from .comparison import ComparisonRequest, compare_points
from .device_workload import (
    DeviceWorkload,
    OpenChoice,
    brought,
    given_command,
    side_of,
)
from .planned_step import measured_plan, planned_options
from .profiling import ProfileRequest, profile
from .step_data import StepData
from .step_records import calibrated, protocol_of, recorder, start_band
from .training import TrainingRequest, train

__all__ = [
    "brought",
    "calibrated",
    "compare_points",
    "ComparisonRequest",
    "DeviceWorkload",
    "given_command",
    "measured_plan",
    "OpenChoice",
    "planned_options",
    "profile",
    "ProfileRequest",
    "protocol_of",
    "recorder",
    "side_of",
    "start_band",
    "StepData",
    "train",
    "TrainingRequest",
]
