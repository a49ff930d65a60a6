"""Runs as tables for other programs: CSV, and Kernel Tuner's T4 form."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
