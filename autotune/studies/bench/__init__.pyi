from .bench import WAYS, Bench, Measured
from .device_bench import DeviceBench, crossing_shares, setting_of

__all__ = [
    "Bench",
    "crossing_shares",
    "DeviceBench",
    "Measured",
    "setting_of",
    "WAYS",
]
