"""Formulations of the training operators, with one file per operator and role."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
