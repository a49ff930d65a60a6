from .adapters import check_adapter, save_adapter
from .captured import Captured, capture, capture_module, load_model
from .hugging_face import NAMED, PREFIX, named_with, tokenizer_of
from .torch_step import ModuleStep, TorchStep, torch
from .user_step import Step, WantedStep, wanted_step

__all__ = [
    "Captured",
    "capture",
    "capture_module",
    "check_adapter",
    "load_model",
    "ModuleStep",
    "NAMED",
    "named_with",
    "PREFIX",
    "save_adapter",
    "Step",
    "tokenizer_of",
    "TorchStep",
    "torch",
    "WantedStep",
    "wanted_step",
]
