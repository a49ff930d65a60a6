from .exporting import ExportRequest, ExportResult, export, exported
from .tuning import StepOutcome, Tuned, measure_step, resumed_request, tune

__all__ = [
    "export",
    "exported",
    "ExportRequest",
    "ExportResult",
    "measure_step",
    "resumed_request",
    "StepOutcome",
    "tune",
    "Tuned",
]
