from . import step_bundle
from .gpu_side import GpuRuns, GpuSide, gpu_runs
from .measured_step import MeasuredStep, measure_step
from .step import StepSession, open_step
from .tuned_runs import StepRuns, fitting_form, step_runs

__all__ = [
    "fitting_form",
    "gpu_runs",
    "GpuRuns",
    "GpuSide",
    "measure_step",
    "MeasuredStep",
    "open_step",
    "step_bundle",
    "step_runs",
    "StepRuns",
    "StepSession",
]
