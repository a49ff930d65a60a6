"""Proposals of configurations, as Optuna samplers: probes and models, and other searches for comparison."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
