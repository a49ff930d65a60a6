"""Child processes that handle one request at a time, and the causes of their ends."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
