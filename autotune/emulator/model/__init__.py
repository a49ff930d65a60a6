"""The model of a chip: profiles, time and power of steps, heat, clocks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
