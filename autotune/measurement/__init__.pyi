from . import verdicts
from .blocks import in_blocks
from .conditions import body_zone
from .host import host_conditions
from .observer import Observer
from .outcome import Outcome, Status
from .profile import CallProfile, Calls, StepProfile
from .setting import Setting, all_of, threads_of
from .snapshot import Best, Broken, Conditions
from .statistics import Interval, bootstrap_median, median, paired_speedup, ratio_of_sums
from .step_bench import StepBench
from .step_run import Band, Protocol, StepRun, Workload
from .step_runner import (
    PROGRAM,
    CrossingSeconds,
    MemoryKind,
    OnGpu,
    OpenClDevice,
    StepRunner,
    crossing_seconds,
    settings_text,
    switch_seconds,
)
from .timelines import Timeline, timeline
from .verdicts import LOOKS, TIE, Verdict, Winner, judge, versus

__all__ = [
    "all_of",
    "Band",
    "Best",
    "body_zone",
    "bootstrap_median",
    "Broken",
    "CallProfile",
    "Calls",
    "Conditions",
    "crossing_seconds",
    "CrossingSeconds",
    "host_conditions",
    "in_blocks",
    "Interval",
    "judge",
    "LOOKS",
    "median",
    "MemoryKind",
    "Observer",
    "OnGpu",
    "OpenClDevice",
    "Outcome",
    "paired_speedup",
    "PROGRAM",
    "Protocol",
    "ratio_of_sums",
    "Setting",
    "settings_text",
    "Status",
    "StepBench",
    "StepProfile",
    "StepRun",
    "StepRunner",
    "switch_seconds",
    "threads_of",
    "TIE",
    "Timeline",
    "timeline",
    "Verdict",
    "verdicts",
    "versus",
    "Winner",
    "Workload",
]
