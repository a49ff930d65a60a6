"""Child processes that do one request at a time, and whose fault it is when one ends."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
