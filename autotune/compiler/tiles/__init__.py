"""Tiles: the decisions of our own schedule rules, as plain numbers. No TVM here.

Each module has the tiles of one rule: what can be drawn and changed, what fits a device, and features for the
cost model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
