"""Kernel runs, and exports of what they found."""

from autotune.jobs.kernels.exporting import ExportRequest, export
from autotune.jobs.kernels.tuning import StepOutcome, Tuned, measure_step, resumed_request, tune

__all__ = [
    "export",
    "ExportRequest",
    "measure_step",
    "resumed_request",
    "StepOutcome",
    "tune",
    "Tuned",
]
