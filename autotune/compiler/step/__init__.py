"""A training step with tuned kernels: planned, compiled, bundled for a device, run and measured."""

from autotune.compiler.step import step_bundle
from autotune.compiler.step.gpu_side import GpuRuns, GpuSide, gpu_runs
from autotune.compiler.step.measured_step import MeasuredStep, measure_step
from autotune.compiler.step.step import StepSession, open_step
from autotune.compiler.step.tuned_runs import StepRuns, fitting_form, step_runs

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
