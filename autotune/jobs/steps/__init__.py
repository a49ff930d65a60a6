"""Training steps on this machine or on a device: trained, profiled, compared, measured as planned."""

from autotune.jobs.steps.comparison import ComparisonRequest, compare_points
from autotune.jobs.steps.device_workload import (
    DeviceWorkload,
    OpenChoice,
    brought,
    given_command,
    side_of,
)
from autotune.jobs.steps.planned_step import measured_plan, planned_options
from autotune.jobs.steps.profiling import ProfileRequest, profile
from autotune.jobs.steps.step_records import calibrated, protocol_of, recorder, start_band
from autotune.jobs.steps.training import TrainingRequest, train

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
    "train",
    "TrainingRequest",
]
