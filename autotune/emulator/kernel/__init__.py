"""The files of an emulated kernel, answered by the model: cpufreq, sensors, identity."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
