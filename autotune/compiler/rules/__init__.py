"""Schedule rules: how a formulation becomes a TVM schedule, and which rules a search space asks for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
