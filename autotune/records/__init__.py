"""Runs on disk: what was asked, every measurement, and the result."""

from autotune.records.folder import RunFolder, read_run
from autotune.records.result import Drift, PooledSchedule, RecordsUse, Result, TaskResult
from autotune.records.shares import MOVEMENT, Share, step_shares

__all__ = [
    "MOVEMENT",
    "Drift",
    "Result",
    "RecordsUse",
    "RunFolder",
    "Share",
    "PooledSchedule",
    "TaskResult",
    "read_run",
    "step_shares",
]
