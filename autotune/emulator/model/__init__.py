"""The model of a chip: profiles, time and power of steps, heat, clocks."""

from autotune.emulator.model import profile
from autotune.emulator.model.clock import Clock, RealClock, VirtualClock
from autotune.emulator.model.policy import Policy
from autotune.emulator.model.profile import Battery, Monitor, Profile, Rail, Zone, load
from autotune.emulator.model.soc import Load, Soc
from autotune.emulator.model.step_model import ALEXNET_B16, schedule_estimate
from autotune.emulator.model.trained import (
    STEP_RUNNER,
    TRAINER,
    Piece,
    Program,
    StepRunner,
    Trainer,
    arguments,
    scaled,
)

__all__ = [
    "ALEXNET_B16",
    "arguments",
    "Battery",
    "Clock",
    "load",
    "Load",
    "Monitor",
    "Piece",
    "Policy",
    "Profile",
    "profile",
    "Program",
    "Rail",
    "RealClock",
    "scaled",
    "schedule_estimate",
    "Soc",
    "STEP_RUNNER",
    "StepRunner",
    "Trainer",
    "TRAINER",
    "VirtualClock",
    "Zone",
]
