"""Whole training steps of PyTorch as graphs of ATen operators, and how these become step graphs.

``trace`` is the only module here that uses PyTorch. What it gives is plain data: forward, loss and backward.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
