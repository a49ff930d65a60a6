"""The device that options name, made ready: phones, boards, this host, models, trackers; and values of options."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
