"""Proposals: designed probes and models, and the searches that they are compared with, as Optuna samplers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
