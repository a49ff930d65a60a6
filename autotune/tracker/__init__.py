"""The host's side of RPC: the tracker, the device servers, and who watches them."""

from autotune.tracker.deploy import LOOPBACK, Deployment, Service
from autotune.tracker.link import Crash, Served, TrackerLink
from autotune.tracker.state import FleetState
from autotune.tracker.supervisor import UpRequest, public_address, refuse_taken

__all__ = [
    "Crash",
    "Deployment",
    "FleetState",
    "LOOPBACK",
    "public_address",
    "refuse_taken",
    "Served",
    "Service",
    "TrackerLink",
    "UpRequest",
]
