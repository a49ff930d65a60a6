"""Schedule rules: they turn a formulation into a TVM schedule, as the search space asks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
