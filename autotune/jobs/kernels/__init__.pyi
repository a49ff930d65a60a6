from .exporting import ExportRequest, export
from .tuning import StepOutcome, Tuned, measure_step, resumed_request, tune

__all__ = [
    "export",
    "ExportRequest",
    "measure_step",
    "resumed_request",
    "StepOutcome",
    "tune",
    "Tuned",
]
