"""What kernels are tuned for: targets, the search spaces of `search_spaces/`, limits of a device, and requests.

Plain data that a command can read without TVM."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
