"""What builds and measures candidates: on this machine, under qemu-user, over an RPC tracker, or by a model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
