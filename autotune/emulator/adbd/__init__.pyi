from .connection import Authorise, Identity
from .daemon import Daemon
from .inside import Mode, Process
from .link_faults import LinkFaults
from .services import PhoneServices, Rooted
from .sync_service import SyncService

__all__ = [
    "Authorise",
    "Daemon",
    "Identity",
    "LinkFaults",
    "Mode",
    "PhoneServices",
    "Process",
    "Rooted",
    "SyncService",
]
