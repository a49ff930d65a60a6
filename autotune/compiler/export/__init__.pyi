from .exporter import NAME, export, named_format
from .findings import Verdict
from .objects import Report
from .opencl_format import write_launch_table
from .variants import (
    ExportedKernel,
    Variant,
    opencl_device,
    unique,
    variant_of_choice,
    variants_of_runs,
    with_schedules,
)
from .verification import WHERE, Remote, verify

__all__ = [
    "export",
    "ExportedKernel",
    "NAME",
    "named_format",
    "opencl_device",
    "Remote",
    "Report",
    "unique",
    "Variant",
    "variant_of_choice",
    "variants_of_runs",
    "Verdict",
    "verify",
    "WHERE",
    "with_schedules",
    "write_launch_table",
]
