"""The phone's side of adb: what the adb server of a host finds at the other end of the link."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
