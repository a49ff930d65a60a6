"""Devices: the phones, boards and hosts that kernels are tuned for, behind one protocol."""

from autotune.devices.device import Completed, Device, quoted

__all__ = ["Completed", "Device", "quoted"]
