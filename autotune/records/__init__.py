"""Runs on disk: what was asked, every measurement, and the result."""

from autotune.records.folder import RunFolder, read_run
from autotune.records.result import Result, TaskResult

__all__ = ["Result", "RunFolder", "TaskResult", "read_run"]
