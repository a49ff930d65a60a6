"""The host's side of RPC: the tracker, the device servers, and the threads that watch them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
