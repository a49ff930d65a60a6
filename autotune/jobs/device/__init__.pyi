from .chosen_device import (
    ChosenDevice,
    Program,
    check_meter,
    choose,
    find_meter,
    on_device,
    ranges,
    ready,
)
from .cores import HYBRID, chosen_cores, model_runner
from .fleet import fleet_of, fleet_runner, target_on
from .left_behind import restore_left_behind, still_there
from .options import celsius, finite, lasting, lasting_space, limits, one_of, parse_size
from .settings import boards

__all__ = [
    "boards",
    "check_meter",
    "choose",
    "chosen_cores",
    "ChosenDevice",
    "find_meter",
    "celsius",
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
