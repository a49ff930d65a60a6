from . import launch, state
from .deploy import LOOPBACK, Deployment, Service
from .link import Crash, Served, TrackerLink
from .state import FleetState
from .supervisor import UpRequest, public_address, refuse_taken

__all__ = [
    "Crash",
    "Deployment",
    "FleetState",
    "launch",
    "LOOPBACK",
    "public_address",
    "refuse_taken",
    "Served",
    "Service",
    "state",
    "TrackerLink",
    "UpRequest",
]
