"""Scheduled programs as data: candidates, traces that are replayed, default schedules, and traits read from a program.

A trace from a file reaches TVM through `replay_trace` only."""

from autotune.compiler.programs.annotations import (
    HALF,
    IMAGE,
    functions_of,
    noted_blocks,
    reads_images,
)
from autotune.compiler.programs.candidate import DEFAULT, Candidate, digest_of, program_hash
from autotune.compiler.programs.data_movement import movement_stages, only_stages
from autotune.compiler.programs.plain_data import plain
from autotune.compiler.programs.schedule_traits import traits
from autotune.compiler.programs.scheduled import (
    Winner,
    plain_gpu_program,
    pooled,
    untuned_program,
    winners,
    winners_of,
)
from autotune.compiler.programs.trace_replay import replay_trace
from autotune.compiler.programs.untuned import default_schedule

__all__ = [
    "Candidate",
    "DEFAULT",
    "default_schedule",
    "digest_of",
    "functions_of",
    "HALF",
    "IMAGE",
    "movement_stages",
    "noted_blocks",
    "only_stages",
    "plain",
    "plain_gpu_program",
    "pooled",
    "program_hash",
    "reads_images",
    "replay_trace",
    "traits",
    "untuned_program",
    "Winner",
    "winners",
    "winners_of",
]
