"""Defines what kernels are tuned for: targets, search spaces (`search_spaces/`), device limits and requests.

It holds plain data, which a command can read without TVM."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
