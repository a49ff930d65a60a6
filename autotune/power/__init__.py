"""Meters of power and energy: found, calibrated, integrated, and judged."""

from autotune.power.battery import Calibration, calibrate
from autotune.power.channels import Channel, Meter, find
from autotune.power.checks import one_ceiling
from autotune.power.meizu_traces import TracedRun
from autotune.power.printed import samples
from autotune.power.stream import Stream
from autotune.power.trace import Baseline, Joules, Trace, baseline, net_energy, resolution, trace_of

__all__ = [
    "Baseline",
    "baseline",
    "calibrate",
    "Calibration",
    "Channel",
    "find",
    "Joules",
    "Meter",
    "net_energy",
    "one_ceiling",
    "resolution",
    "samples",
    "Stream",
    "Trace",
    "trace_of",
    "TracedRun",
]
