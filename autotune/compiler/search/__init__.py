"""The search for a kernel's schedule.

It has the search of one formulation, the XGBoost cost model, and schedules derived from those of similar kernels.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
