"""An emulated device in this process, behind the `Device` protocol."""

from autotune.emulator.device.commands import properties
from autotune.emulator.device.device import EmulatedDevice
from autotune.emulator.device.observed import observing

__all__ = [
    "EmulatedDevice",
    "observing",
    "properties",
]
