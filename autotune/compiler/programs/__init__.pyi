from .annotations import HALF, IMAGE, functions_of, noted_blocks, reads_images
from .candidate import DEFAULT, Candidate, digest_of, program_hash
from .data_movement import movement_stages, only_stages
from .own_programs import own_kernel
from .plain_data import plain
from .program_text import program_of, program_text
from .schedule_traits import traits
from .scheduled import (
    Winner,
    plain_gpu_program,
    plain_module,
    pooled,
    untuned_program,
    winners,
    winners_of,
)
from .trace_replay import replay_trace
from .unscheduled import Unscheduled
from .untuned import default_schedule

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
    "own_kernel",
    "plain",
    "plain_gpu_program",
    "plain_module",
    "pooled",
    "program_hash",
    "program_of",
    "program_text",
    "reads_images",
    "replay_trace",
    "traits",
    "Unscheduled",
    "untuned_program",
    "Winner",
    "winners",
    "winners_of",
]
