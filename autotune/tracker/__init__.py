"""The host's side of RPC: the tracker, the device servers, and who watches them."""

from autotune.tracker.link import Crash, Served, TrackerLink

__all__ = ["Crash", "Served", "TrackerLink"]
