"""One file per command: it parses options, calls a job, and prints the result."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
