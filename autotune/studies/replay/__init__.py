"""Recorded tables and published traces, in the place of a device."""

from autotune.studies.replay.replay import read, search
from autotune.studies.replay.traces import MISSING, read_traces

__all__ = [
    "MISSING",
    "read",
    "read_traces",
    "search",
]
