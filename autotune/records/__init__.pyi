from .database import (
    About,
    Database,
    Form,
    Identity,
    Schedule,
    SearchedTask,
    Source,
    TaskDifference,
    difference,
    merged,
    spread,
)
from .database_file import SUFFIX, read_database, write_database
from .folder import Run, RunFolder, read_json, read_run, write_json, write_text
from .joining import joined, place_for
from .json_form import json_text
from .result import Drift, PooledSchedule, RecordsUse, Result, TaskResult
from .run_kinds import Kind, command_of, how_to_end, kind_of, work_of
from .run_paths import is_run, place_of
from .step_time import MOVEMENT, Share, step_shares
from .store import pulled
from .trace_grammar import ANNOTATION_KEYS, check_trace

__all__ = [
    "About",
    "ANNOTATION_KEYS",
    "check_trace",
    "command_of",
    "Database",
    "difference",
    "Drift",
    "Form",
    "how_to_end",
    "Identity",
    "is_run",
    "joined",
    "json_text",
    "Kind",
    "kind_of",
    "merged",
    "MOVEMENT",
    "place_for",
    "place_of",
    "PooledSchedule",
    "pulled",
    "read_database",
    "read_json",
    "read_run",
    "RecordsUse",
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
    "TaskDifference",
    "TaskResult",
    "work_of",
    "write_database",
    "write_json",
    "write_text",
]
