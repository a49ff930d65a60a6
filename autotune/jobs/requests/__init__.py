"""Requests: frozen dataclasses, made once from options or from a run's file, and validated here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
