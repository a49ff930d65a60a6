"""What runs and results record of themselves, and what is said of a run that was interrupted."""

from autotune.jobs.provenance.interrupted import RunInterrupted, how_to_resume
from autotune.jobs.provenance.provenance import about_run, command_line_of, named

__all__ = [
    "about_run",
    "command_line_of",
    "how_to_resume",
    "named",
    "RunInterrupted",
]
