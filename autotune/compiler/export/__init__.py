"""Exports: kernels as a library for other programs, with a manifest, checks and an example."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
