"""The device that options name, made ready: phones, boards, this host, models, trackers; and values of options."""

from autotune.jobs.device.chosen_device import (
    ChosenDevice,
    Program,
    choose,
    find_meter,
    on_device,
    ranges,
    ready,
)
from autotune.jobs.device.cores import HYBRID, chosen_cores, model_runner
from autotune.jobs.device.fleet import fleet_of, fleet_runner, target_on
from autotune.jobs.device.left_behind import restore_left_behind, still_there
from autotune.jobs.device.options import finite, lasting, lasting_space, limits, one_of, parse_size
from autotune.jobs.device.settings import boards

__all__ = [
    "boards",
    "choose",
    "chosen_cores",
    "ChosenDevice",
    "find_meter",
    "finite",
    "fleet_of",
    "fleet_runner",
    "HYBRID",
    "lasting",
    "lasting_space",
    "limits",
    "model_runner",
    "on_device",
    "one_of",
    "parse_size",
    "Program",
    "ranges",
    "ready",
    "restore_left_behind",
    "still_there",
    "target_on",
]
