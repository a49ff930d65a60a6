"""Builds and measures candidates: here, under qemu-user, on devices behind a tracker, or with a model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
