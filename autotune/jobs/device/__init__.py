"""Prepares the device that options name: a phone, board, this host, a model or a tracker.

Also reads option values.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
