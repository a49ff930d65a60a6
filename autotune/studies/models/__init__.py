"""Models of time and power.

They are physics fitted to a few measurements, a Gaussian process, and a model of kernels' schedules.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
