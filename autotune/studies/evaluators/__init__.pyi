from .device_evaluator import DeviceEvaluator, crossing_shares, setting_of
from .evaluator import WAYS, Evaluator, Measured

__all__ = [
    "Evaluator",
    "crossing_shares",
    "DeviceEvaluator",
    "Measured",
    "setting_of",
    "WAYS",
]
