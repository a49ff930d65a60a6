"""Training steps on this machine or on a device: trained, profiled, compared, and measured with a plan."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
