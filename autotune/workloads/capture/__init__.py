"""Turns a user's PyTorch module into a training step. Only this package imports torch, and only when called."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
