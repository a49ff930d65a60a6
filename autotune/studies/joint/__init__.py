"""Schedules, cores and clocks searched together, and calls placed on the CPU or the GPU."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
