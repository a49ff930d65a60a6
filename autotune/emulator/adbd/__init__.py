"""The phone's side of adb, which the adb server of a host connects to."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
