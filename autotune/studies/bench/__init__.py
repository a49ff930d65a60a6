"""What a study measures with: a device, behind one protocol."""

from autotune.studies.bench.bench import WAYS, Bench, Measured
from autotune.studies.bench.device_bench import DeviceBench, crossing_shares, setting_of

__all__ = [
    "Bench",
    "crossing_shares",
    "DeviceBench",
    "Measured",
    "setting_of",
    "WAYS",
]
