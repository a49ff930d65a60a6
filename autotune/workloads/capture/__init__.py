"""Turns a user's PyTorch module into a training step; the only place that imports torch, and only when called."""

from autotune.workloads.capture.captured import Captured, capture, capture_module

__all__ = ["Captured", "capture", "capture_module"]
