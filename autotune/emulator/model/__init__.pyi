from . import profile
from .clock import Clock, RealClock, VirtualClock
from .policy import Policy
from .profile import Battery, Monitor, Profile, Rail, Zone, load
from .running_load import Load
from .soc import Soc
from .step_model import ALEXNET_B16, schedule_estimate
from .trained import STEP_RUNNER, TRAINER, Piece, Program, StepRunner, Trainer, arguments, scaled

__all__ = [
    "ALEXNET_B16",
    "arguments",
    "Battery",
    "Clock",
    "Load",
    "load",
    "Monitor",
    "Piece",
    "Policy",
    "profile",
    "Profile",
    "Program",
    "Rail",
    "RealClock",
    "scaled",
    "schedule_estimate",
    "Soc",
    "STEP_RUNNER",
    "StepRunner",
    "TRAINER",
    "Trainer",
    "VirtualClock",
    "Zone",
]
