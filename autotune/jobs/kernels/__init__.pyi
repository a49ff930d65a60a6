from .exporting import ExportRequest, ExportResult, export
from .tuning import StepOutcome, Tuned, measure_step, resumed_request, tune

__all__ = [
    "export",
    "ExportRequest",
    "ExportResult",
    "measure_step",
    "resumed_request",
    "StepOutcome",
    "tune",
    "Tuned",
]
