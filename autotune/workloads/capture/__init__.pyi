from .captured import Captured, capture, capture_module
from .factory import load_module
from .torch_step import ModuleStep, TorchStep, torch
from .user_step import Step, WantedStep, wanted_step

__all__ = [
    "Captured",
    "capture",
    "capture_module",
    "load_module",
    "ModuleStep",
    "Step",
    "TorchStep",
    "torch",
    "WantedStep",
    "wanted_step",
]
