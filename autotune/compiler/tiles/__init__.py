"""Tiles: the decisions of our own schedule rules, as plain numbers. This package does not import TVM.

Each module has the tiles of one rule: how they are drawn and changed, which fit a device, and their features for
the cost model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
