"""Outcomes of measurements and the statistics over them."""

from autotune.measurement.blocks import in_blocks
from autotune.measurement.conditions import body_zone
from autotune.measurement.host import host_conditions
from autotune.measurement.observer import Observer
from autotune.measurement.outcome import Outcome, Status
from autotune.measurement.profile import CallProfile, Calls, StepProfile
from autotune.measurement.setting import Setting, all_of, threads_of
from autotune.measurement.snapshot import Best, Broken, Conditions
from autotune.measurement.statistics import (
    Interval,
    bootstrap_median,
    median,
    paired_speedup,
    ratio_of_sums,
)
from autotune.measurement.step_bench import StepBench
from autotune.measurement.step_run import Band, Protocol, StepRun, Workload
from autotune.measurement.step_runner import (
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
from autotune.measurement.timelines import Timeline, timeline
from autotune.measurement.verdicts import LOOKS, TIE, Winner, judge, versus

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
    "versus",
    "Winner",
    "Workload",
]
