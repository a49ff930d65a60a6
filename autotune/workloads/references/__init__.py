"""Float64 references of every kernel, the inputs to check it with, and the comparison."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
