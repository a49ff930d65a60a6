from . import cpufreq, discovery, journal
from .device import Completed, Device, quoted
from .discovery import Listed, choose, reach
from .info import DeviceInfo, probe
from .journal import (
    EMULATED_KIND,
    SETTINGS,
    Change,
    Journal,
    LeftBehind,
    held,
    left_behind,
)
from .local import LocalDevice
from .ports import free_port
from .probes import Capability, capabilities
from .sensors import ThermalZone, celsius
from .shell import BOOT_ID
from .topology import Cluster, Files, cpu_list, cpu_list_text, number, text

__all__ = [
    "BOOT_ID",
    "capabilities",
    "Capability",
    "celsius",
    "Change",
    "choose",
    "Cluster",
    "Completed",
    "cpu_list",
    "cpu_list_text",
    "cpufreq",
    "Device",
    "DeviceInfo",
    "discovery",
    "EMULATED_KIND",
    "Files",
    "free_port",
    "held",
    "Journal",
    "journal",
    "left_behind",
    "LeftBehind",
    "Listed",
    "LocalDevice",
    "number",
    "probe",
    "quoted",
    "reach",
    "SETTINGS",
    "text",
    "ThermalZone",
]
