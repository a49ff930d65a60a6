"""Devices: the phones, boards and hosts that kernels are tuned for, behind one protocol."""

from autotune.devices.device import Completed, Device, quoted
from autotune.devices.discovery import Listed, choose, reach
from autotune.devices.info import DeviceInfo, probe
from autotune.devices.journal import (
    EMULATED_KIND,
    SETTINGS,
    Change,
    Journal,
    LeftBehind,
    held,
    left_behind,
    state_root,
)
from autotune.devices.local import LocalDevice
from autotune.devices.ports import free_port
from autotune.devices.probes import capabilities
from autotune.devices.sensors import ThermalZone, celsius
from autotune.devices.shell import BOOT_ID
from autotune.devices.topology import Cluster, Files, cpu_list, cpu_list_text, number, text

__all__ = [
    "BOOT_ID",
    "capabilities",
    "celsius",
    "Change",
    "choose",
    "Cluster",
    "Completed",
    "cpu_list",
    "cpu_list_text",
    "Device",
    "DeviceInfo",
    "EMULATED_KIND",
    "Files",
    "free_port",
    "held",
    "Journal",
    "left_behind",
    "LeftBehind",
    "Listed",
    "LocalDevice",
    "number",
    "probe",
    "quoted",
    "reach",
    "SETTINGS",
    "state_root",
    "text",
    "ThermalZone",
]
