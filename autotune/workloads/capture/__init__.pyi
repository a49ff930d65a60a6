from .captured import Captured, capture, capture_module

__all__ = ["Captured", "capture", "capture_module"]
