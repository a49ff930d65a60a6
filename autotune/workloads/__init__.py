"""The workloads to tune: operators, kernels, models and whole training steps, as plain data.

This package imports only numpy, scipy and the standard library. ``capture`` imports torch, when it is called.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
