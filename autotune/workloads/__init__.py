"""The workloads to tune: operators, kernels, models and whole training steps, as plain data.

It imports numpy, scipy and the standard library. ``capture`` imports torch when it is called, and the program that
tokenises texts imports tokenizers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
