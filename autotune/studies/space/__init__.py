"""The choices and goals of a search over CPU configurations.

Configurations, ranges, objectives, limits, Pareto fronts.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
