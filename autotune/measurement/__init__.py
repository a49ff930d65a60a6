"""Measurements of kernels and steps: conditions, observation, energy, outcomes, and the statistics over them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
