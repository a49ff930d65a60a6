"""Meters of power and energy: found, calibrated, integrated, and judged."""

from autotune.power.channels import Channel, find
from autotune.power.trace import Joules, Trace, net_energy

__all__ = ["Channel", "Joules", "Trace", "find", "net_energy"]
