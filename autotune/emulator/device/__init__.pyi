from .commands import properties
from .device import EmulatedDevice
from .observed import observing

__all__ = [
    "EmulatedDevice",
    "observing",
    "properties",
]
