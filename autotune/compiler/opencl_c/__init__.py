"""Passes over the OpenCL C that TVM generates.

Aligned vectors, half precision, images, vector stores, launch limits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
