from . import channels, checks, meizu_traces, nvml, stream
from .battery import Calibration, calibrate
from .channels import Channel, Meter, find
from .checks import one_ceiling
from .meizu_traces import TracedRun
from .printed import samples
from .stream import Stream, Taken
from .trace import Baseline, Joules, Trace, baseline, net_energy, resolution, trace_of

__all__ = [
    "Baseline",
    "baseline",
    "calibrate",
    "Calibration",
    "Channel",
    "channels",
    "checks",
    "find",
    "Joules",
    "meizu_traces",
    "Meter",
    "net_energy",
    "nvml",
    "one_ceiling",
    "resolution",
    "samples",
    "stream",
    "Stream",
    "Taken",
    "Trace",
    "trace_of",
    "TracedRun",
]
