from .captured import Captured, capture, capture_module, load_model
from .hugging_face import NAMED, PREFIX, named_with
from .torch_step import ModuleStep, TorchStep, torch
from .user_step import Step, WantedStep, wanted_step

__all__ = [
    "Captured",
    "capture",
    "capture_module",
    "load_model",
    "ModuleStep",
    "NAMED",
    "named_with",
    "PREFIX",
    "Step",
    "TorchStep",
    "torch",
    "WantedStep",
    "wanted_step",
]
