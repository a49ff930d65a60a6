from .interrupted import RunInterrupted, how_to_resume
from .provenance import Work, about_run, command_line, command_line_of, named

__all__ = [
    "about_run",
    "command_line",
    "command_line_of",
    "how_to_resume",
    "named",
    "RunInterrupted",
    "Work",
]
