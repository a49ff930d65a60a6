"""Runs on disk: what was asked, every measurement, and the result."""

from autotune.records.database import (
    Database,
    Identity,
    Schedule,
    SearchedTask,
    Source,
    difference,
    merged,
    refuse_mixture,
    spread,
)
from autotune.records.database_file import SUFFIX, file_name, read_database, write_database
from autotune.records.folder import Run, RunFolder, read_json, read_run, write_json, write_text
from autotune.records.json_form import json_text
from autotune.records.kinds import Kind, how_to_end, kind_of
from autotune.records.places import is_run, place_of
from autotune.records.result import Drift, PooledSchedule, RecordsUse, Result, TaskResult
from autotune.records.shares import MOVEMENT, Share, step_shares
from autotune.records.store import pulled
from autotune.records.trace_grammar import ANNOTATION_KEYS, check_trace

__all__ = [
    "ANNOTATION_KEYS",
    "check_trace",
    "Database",
    "difference",
    "Drift",
    "file_name",
    "how_to_end",
    "Identity",
    "is_run",
    "json_text",
    "Kind",
    "kind_of",
    "merged",
    "MOVEMENT",
    "place_of",
    "PooledSchedule",
    "pulled",
    "read_database",
    "read_json",
    "read_run",
    "RecordsUse",
    "refuse_mixture",
    "Result",
    "Run",
    "RunFolder",
    "Schedule",
    "SearchedTask",
    "Share",
    "Source",
    "spread",
    "step_shares",
    "SUFFIX",
    "TaskResult",
    "write_database",
    "write_json",
    "write_text",
]
