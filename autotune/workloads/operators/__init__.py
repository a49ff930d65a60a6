"""The operators of a training step as plain data: shapes, roles, operands and cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
