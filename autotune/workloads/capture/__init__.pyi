from .captured import Captured, capture, capture_module
from .factory import load_module
from .torch_step import EagerStep, ModuleStep, TorchStep, torch

__all__ = [
    "Captured",
    "capture",
    "capture_module",
    "load_module",
    "EagerStep",
    "ModuleStep",
    "TorchStep",
    "torch",
]
